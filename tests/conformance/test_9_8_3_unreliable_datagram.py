"""IBTA Vol 1, 9.8.3 and 10.2.5: datagrams, their keys, their GRH, and silence about every fault."""

from __future__ import annotations

import errno
import struct

import pytest

from softhca._adapter import (
    Access,
    QPState,
    QPType,
    Route,
    WcFlags,
    WcStatus,
    WrOpcode,
)

from .host import Host, av_to, errno_of, gid_of, pattern, read, send, write
from .peer import Peer, connect

SUCCESS, FLUSHED = WcStatus.SUCCESS, WcStatus.WR_FLUSH_ERR
QKEY = 0x1234
GRH = 40


@pytest.fixture
def port(host):
    """(qp, peer, memory): a datagram queue pair with path MTU 4096, the port's."""
    qp, peer = connect(host, QPType.UD, qkey=QKEY)
    return qp, peer, host.memory(16384)


def datagram(peer, payload=b"", **fields):
    fields = {"qkey": QKEY, "source_qpn": 0x777, "psn": 5, **fields}
    return peer.request("SEND_ONLY", payload, **fields)


def to(host, **more):
    """What a send needs to go to the peer."""
    ah = more.pop("ah", None)
    if ah is None:
        ah = host.address_handle()
    return {"ah": ah, "remote_qpn": 0xABC, "remote_qkey": QKEY, **more}


# --- receiving


def test_9_8_3_forty_bytes_of_grh_come_first(port):
    qp, peer, memory = port
    qp.recv(memory.sge(0, 200), wr_id=4)
    datagram(peer, b"payload", immediate=0)
    (wc,) = qp.host.recv_wcs()
    assert (wc.wr_id, wc.status, wc.byte_len) == (4, SUCCESS, GRH + 7)
    assert wc.src_qp == 0x777
    assert wc.wc_flags & WcFlags.GRH
    assert memory.bytes[GRH : GRH + 7] == b"payload"


def test_a17_the_grh_of_ipv4_is_the_ip_header_in_its_second_half(port):
    """A consumer tells the version by the header's checksum, so it must be right."""
    qp, peer, memory = port
    qp.recv(memory.sge(), wr_id=4)
    datagram(peer, b"payload!")
    header = bytes(memory.bytes[20:40])
    total = sum(struct.unpack(">10H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    assert total == 0xFFFF
    version, _, length, _, _, _, protocol, _, source, destination = struct.unpack(
        ">BBHHHBBH4s4s", header
    )
    # IP, UDP, BTH, DETH, payload, ICRC.
    assert (version, length, protocol) == (0x45, 20 + 8 + 12 + 8 + 8 + 4, 17)
    assert (source, destination) == (bytes([10, 9, 0, 1]), bytes([10, 9, 0, 2]))


def test_a17_the_grh_of_ipv6_is_the_ip_header():
    host = Host(address="fd09::2")
    qp, peer = connect(host, QPType.UD, qkey=QKEY, address="fd09::1")
    memory = host.memory(256)
    qp.recv(memory.sge(), wr_id=4)
    datagram(peer, b"payload!")
    assert host.receives() == [(4, SUCCESS)]
    header = memory.bytes[:40]
    assert header[0] >> 4 == 6
    assert struct.unpack(">HB", header[4:7]) == (8 + 12 + 8 + 8 + 4, 17)
    assert (header[8:24], header[24:40]) == (
        b"\xfd\x09" + bytes(13) + b"\x01",
        b"\xfd\x09" + bytes(13) + b"\x02",
    )


def test_9_8_3_the_grh_scatters_like_the_payload(port):
    qp, peer, memory = port
    qp.recv(memory.sge(0, 10), memory.sge(100, 40), memory.sge(200, 20), wr_id=4)
    datagram(peer, b"0123456789abcdefghij")
    (wc,) = qp.host.recv_wcs()
    assert wc.byte_len == GRH + 20
    assert memory.bytes[130:140] == b"0123456789"
    assert memory.bytes[200:210] == b"abcdefghij"


SILENT = {
    "another Q_Key": {"qkey": QKEY + 1},
    "another P_Key": {"pkey": 0x8001},
    "another queue pair": {"destination_qpn": 0x123456},
}


@pytest.mark.parametrize("name", SILENT)
def test_9_8_3_what_is_not_for_this_queue_pair_is_dropped_in_silence(port, name):
    qp, peer, memory = port
    qp.recv(memory.sge(), wr_id=4)
    datagram(peer, b"evil", **SILENT[name])
    assert qp.host.receives() == []
    assert memory.bytes == bytes(16384)
    assert peer.take() == []
    datagram(peer, b"good")
    assert qp.host.receives() == [(4, SUCCESS)]


def test_9_8_3_violations_of_keys_are_counted(port):
    qp, peer, _ = port
    datagram(peer, qkey=1)
    datagram(peer, qkey=2)
    datagram(peer, pkey=0x8001)
    counters = qp.host.hca.counters()
    assert (counters["qkey_viol_cntr"], counters["bad_pkey_cntr"]) == (2, 1)
    assert qp.host.hca.query_port().qkey_viol_cntr == 2


@pytest.mark.parametrize(
    ("theirs", "ours", "match"),
    [
        (0xFFFF, 0xFFFF, True),
        (0x7FFF, 0xFFFF, True),
        (0xFFFF, 0x7FFF, True),
        (0x7FFF, 0x7FFF, False),
        (0x8001, 0xFFFF, False),
    ],
)
def test_10_9_3_two_limited_members_do_not_match(theirs, ours, match):
    host = Host(pkeys=(ours,))
    qp, peer = connect(host, QPType.UD, qkey=QKEY)
    qp.recv(host.memory(256).sge(), wr_id=1)
    datagram(peer, pkey=theirs)
    assert (host.receives() == [(1, SUCCESS)]) == match


def test_9_8_3_without_a_receive_a_datagram_is_dropped_in_silence(port):
    qp, peer, memory = port
    datagram(peer, b"lost")
    assert peer.take() == []
    qp.recv(memory.sge(), wr_id=4)
    datagram(peer, b"kept")
    assert qp.host.receives() == [(4, SUCCESS)]
    assert memory.bytes[GRH : GRH + 4] == b"kept"
    assert qp.counters()["out_of_buffer"] == 1


@pytest.mark.parametrize("capacity", [0, 10, 39, 40, GRH + 7])
def test_9_8_3_a_receive_too_small_drops_the_datagram_and_serves_the_next(port, capacity):
    """Class D: nobody is told, and both queue pairs go on."""
    qp, peer, memory = port
    qp.recv(memory.sge(0, capacity), wr_id=4)
    qp.recv(memory.sge(0, 200), wr_id=5)
    datagram(peer, b"8 bytes!")
    assert qp.host.receives() == []
    assert qp.state == QPState.RTS
    if capacity >= GRH:
        datagram(peer, b"")
        assert qp.host.receives() == [(4, SUCCESS)]
    assert peer.take() == []


def test_9_8_3_datagrams_of_any_psn_and_sender_are_taken(port):
    qp, _, memory = port
    stranger = Peer(qp, address="10.9.0.99", prefix="UD")
    for number, psn in enumerate((7, 7, 3, 0xFFFFFF)):
        qp.recv(memory.sge(), wr_id=number)
        datagram(stranger, psn=psn, source_qpn=number + 1)
    assert [(wc.wr_id, wc.src_qp) for wc in qp.host.recv_wcs()] == [
        (number, number + 1) for number in range(4)
    ]


def test_9_8_3_a_bad_receive_is_an_error_completion(port):
    qp, peer, _ = port
    qp.recv((0x1000, 200, 0xBAD00), wr_id=4)
    datagram(peer, b"x")
    assert qp.host.receives() == [(4, WcStatus.LOC_PROT_ERR)]


# --- sending


def test_9_8_3_a_send_completes_when_it_has_left(port):
    qp, peer, memory = port
    memory.bytes[:100] = pattern(100)
    wr = send(
        memory.sge(0, 100),
        opcode=WrOpcode.SEND_WITH_IMM,
        immediate=0x99,
        wr_id=1,
        **to(qp.host),
    )
    qp.post(wr)
    (packet,) = peer.take()
    assert packet.opcode_name == "UD_SEND_ONLY_WITH_IMMEDIATE"
    assert (packet.destination_qpn, packet.qkey, packet.source_qpn) == (0xABC, QKEY, qp.qpn)
    assert (packet.payload, packet.immediate, packet.psn) == (pattern(100), 0x99, 0x800)
    assert qp.host.sends() == [(1, SUCCESS)]


def test_10_2_5_a_remote_qkey_with_its_top_bit_means_the_queue_pairs_own(port):
    qp, peer, _ = port
    qp.post(send(**to(qp.host, remote_qkey=0x80000000)))
    qp.post(send(**to(qp.host, remote_qkey=0xFFFFFFFF)))
    qp.post(send(**to(qp.host, remote_qkey=0x7FFFFFFF)))
    assert [packet.qkey for packet in peer.take()] == [QKEY, QKEY, 0x7FFFFFFF]


def test_9_8_3_a_datagram_as_long_as_the_mtu_leaves(port):
    qp, peer, memory = port
    qp.post(send(memory.sge(0, 4096), wr_id=1, **to(qp.host)))
    assert len(peer.take()) == 1
    assert qp.host.sends() == [(1, SUCCESS)]


def test_9_8_3_a_datagram_longer_than_the_mtu_is_a_local_length_error(port):
    qp, peer, memory = port
    qp.post(send(memory.sge(0, 4097), wr_id=1, **to(qp.host)), send(wr_id=2, **to(qp.host)))
    assert peer.take() == []
    assert qp.host.sends() == [(1, WcStatus.LOC_LEN_ERR), (2, FLUSHED)]
    assert qp.state == QPState.SQE


@pytest.mark.parametrize("make", [read, write])
def test_9_8_3_reads_and_writes_do_not_exist(port, make):
    qp, peer, memory = port
    qp.post(make(memory.sge(0, 8), wr_id=1, **to(qp.host)))
    assert peer.take() == []
    assert qp.host.sends() == [(1, WcStatus.LOC_QP_OP_ERR)]
    assert qp.state == QPState.SQE


def test_11_2_2_an_address_handle_may_be_destroyed_right_after_posting(port):
    qp, peer, _ = port
    ah = qp.host.address_handle()
    qp.post(send(wr_id=1, **to(qp.host, ah=ah)))
    qp.host.hca.destroy_ah(ah)
    assert len(peer.take()) == 1
    assert qp.host.sends() == [(1, SUCCESS)]


@pytest.mark.parametrize("kind", ["none", "unknown", "destroyed", "another protection domain"])
def test_10_2_2_a_bad_address_handle_is_a_local_operation_error(port, kind):
    qp, peer, _ = port
    host = qp.host
    ah = {"none": 0, "unknown": 0x7777}.get(kind)
    if kind == "destroyed":
        ah = host.address_handle()
        host.hca.destroy_ah(ah)
    elif ah is None:
        ah = host.address_handle(pd=host.hca.alloc_pd())
    qp.post(send(wr_id=1, **to(host, ah=ah)))
    assert peer.take() == []
    assert host.sends() == [(1, WcStatus.LOC_QP_OP_ERR)]


def test_10_2_2_a_protection_domain_with_address_handles_is_busy(host):
    pd = host.hca.alloc_pd()
    ah = host.address_handle(pd=pd)
    assert errno_of(host.hca.dealloc_pd, pd) == errno.EBUSY
    host.hca.destroy_ah(ah)
    host.hca.dealloc_pd(pd)


def test_9_8_3_sources_are_checked_as_for_other_services(port):
    qp, peer, _ = port
    foreign = qp.host.memory(64, Access.LOCAL_WRITE, pd=qp.host.hca.alloc_pd())
    qp.post(send(foreign.sge(0, 8), wr_id=1, **to(qp.host)))
    assert peer.take() == []
    assert qp.host.sends() == [(1, WcStatus.LOC_PROT_ERR)]


def test_9_8_3_flow_label_class_and_hop_limit_are_those_of_the_address_handle():
    host = Host(address="fd09::2")
    qp, _ = connect(host, QPType.UD, qkey=QKEY, address="fd09::1")
    av = av_to("fd09::1")
    av.traffic_class, av.hop_limit, av.flow_label = 0x68, 17, 0xBEEF
    handle = host.hca.create_ah(host.pd, av)
    qp.post(send(**to(host, ah=handle)))
    host.pump()
    (sent,) = host.outbox
    assert (sent.route.traffic_class, sent.route.hop_limit) == (0x68, 17)
    assert sent.route.flow_label == 0xBEEF


# --- multicast


GROUP = "239.1.2.3"


def test_10_5_2_each_attached_queue_pair_gets_its_own_copy(host):
    pairs = [connect(host, QPType.UD, qkey=QKEY, peer_qpn=n)[0] for n in (0x11, 0x22, 0x33)]
    memory = host.memory(1024)
    for number, qp in enumerate(pairs):
        qp.recv(memory.sge(256 * number, 256), wr_id=number)
    for qp in pairs[:2]:
        host.hca.attach_mcast(qp.qpn, gid_of(GROUP))
    sender = Peer(pairs[0], prefix="UD")
    sender.route = Route(gid_of("10.9.0.1"), gid_of(GROUP))
    datagram(sender, b"for all", destination_qpn=0xFFFFFF)
    assert sorted(host.receives()) == [(0, SUCCESS), (1, SUCCESS)]
    for number in range(2):
        at = 256 * number + GRH
        assert memory.bytes[at : at + 7] == b"for all"
    host.hca.detach_mcast(pairs[0].qpn, gid_of(GROUP))
    assert errno_of(host.hca.detach_mcast, pairs[0].qpn, gid_of(GROUP)) == errno.EINVAL
    assert errno_of(pairs[1].destroy) == errno.EBUSY


def test_10_5_2_only_datagram_queue_pairs_join_and_only_multicast_groups(host):
    rc, _ = connect(host)
    ud, _ = connect(host, QPType.UD, qkey=QKEY)
    assert errno_of(host.hca.attach_mcast, rc.qpn, gid_of(GROUP)) == errno.EINVAL
    assert errno_of(host.hca.attach_mcast, ud.qpn, gid_of("10.9.0.3")) == errno.EINVAL
