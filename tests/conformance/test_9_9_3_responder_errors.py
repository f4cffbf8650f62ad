"""IBTA Vol 1, 9.7.4.1.7 and 9.9.3: receives that fail, and a responder after a refusal."""

from __future__ import annotations

import pytest

from softhca._adapter import Access, EventType, QPState, QPType, Reason, Route, WcStatus

from .host import gid_of, pattern, send
from .peer import ACK, NAK_ACCESS, NAK_INVALID, NAK_OPERATIONAL, NAK_SEQUENCE, Peer, connect, reth

SUCCESS, FLUSHED = WcStatus.SUCCESS, WcStatus.WR_FLUSH_ERR
PSN = 0x100
MTU = 256


# --- the receive (9.7.4.1.7)


def test_9_9_3_a_receive_too_small_is_a_local_length_error_and_an_invalid_request(served):
    qp, peer, memory = served
    qp.recv(memory.sge(0, 10), wr_id=1)
    qp.recv(memory.sge(100, 100), wr_id=2)
    peer.request("SEND_ONLY", b"\xff" * 11)
    assert peer.answers() == [(PSN, NAK_INVALID)]
    assert qp.host.receives() == [(1, WcStatus.LOC_LEN_ERR), (2, FLUSHED)]
    assert qp.state == QPState.ERR


def test_9_9_3_a_receive_too_small_for_the_last_packet(served):
    qp, peer, memory = served
    qp.recv(memory.sge(0, MTU + 10), wr_id=1)
    peer.request("SEND_FIRST", pattern(MTU), ack_request=False)
    peer.request("SEND_LAST", b"\xff" * 11)
    assert peer.answers() == [(PSN + 1, NAK_INVALID)]
    assert qp.host.receives() == [(1, WcStatus.LOC_LEN_ERR)]
    assert memory.bytes[MTU:] == bytes(4096 - MTU)


BAD_RECEIVES = {
    "an unknown lkey": lambda memory: (memory.address, 64, 0x7FFFFF00),
    "outside its region": lambda memory: (memory.address + 4000, 97, memory.lkey),
    "no LOCAL_WRITE": lambda memory: memory.host.memory(64, Access.REMOTE_READ).sge(),
    "another protection domain": lambda m: m.host.memory(64, pd=m.host.hca.alloc_pd()).sge(),
}


@pytest.mark.parametrize("name", BAD_RECEIVES)
def test_9_9_3_a_bad_receive_is_a_protection_error_and_a_remote_operational_error(served, name):
    qp, peer, memory = served
    qp.recv(BAD_RECEIVES[name](memory), wr_id=1)
    qp.recv(memory.sge(), wr_id=2)
    peer.request("SEND_ONLY", b"\xff" * 32)
    assert peer.answers() == [(PSN, NAK_OPERATIONAL)]
    assert qp.host.receives() == [(1, WcStatus.LOC_PROT_ERR), (2, FLUSHED)]
    assert qp.state == QPState.ERR
    assert memory.bytes == bytes(4096)


def test_9_9_3_a_receive_is_checked_when_it_is_used_and_not_when_it_is_posted(served):
    qp, peer, memory = served
    qp.recv(memory.sge(0, 64), wr_id=1)
    memory.dereg()
    peer.request("SEND_ONLY", b"late")
    assert peer.answers() == [(PSN, NAK_OPERATIONAL)]
    (wc,) = qp.host.recv_wcs()
    assert (wc.status, wc.reason) == (WcStatus.LOC_PROT_ERR, Reason.UNKNOWN_KEY)
    assert wc.key == memory.lkey
    assert memory.bytes == bytes(4096)


def test_9_9_3_bytes_scatter_over_the_entries_of_a_receive(served):
    qp, peer, memory = served
    qp.recv(memory.sge(0, 3), memory.sge(100, 0), memory.sge(200, 300), wr_id=1)
    content = pattern(280)
    peer.request("SEND_FIRST", content[:MTU], ack_request=False)
    peer.request("SEND_LAST", content[MTU:])
    assert qp.host.receives() == [(1, SUCCESS)]
    assert memory.bytes[:3] == content[:3]
    assert memory.bytes[200:477] == content[3:]
    assert memory.bytes[3:200] == bytes(197)


# --- SEND with invalidate (9.9.6.3, class J)


@pytest.mark.parametrize("opcode", ["SEND_ONLY_WITH_INVALIDATE", "SEND_LAST_WITH_INVALIDATE"])
def test_9_9_6_an_invalidate_that_is_refused_is_answered_by_neither_ack_nor_nak(served, opcode):
    """The peer learns of it by its own time-out; here the receive says so and the QP stops."""
    qp, peer, memory = served
    qp.recv(memory.sge(), wr_id=1)
    qp.recv(memory.sge(), wr_id=2)
    if "LAST" in opcode:
        peer.request("SEND_FIRST", bytes(MTU), ack_request=False)
    peer.request(opcode, b"data", invalidate_rkey=memory.rkey)
    assert peer.answers() == []
    first, second = qp.host.receives()
    assert first[0] == 1
    assert first[1] not in (SUCCESS, FLUSHED)
    assert second == (2, FLUSHED)
    assert qp.state == QPState.ERR
    for _ in range(3):
        peer.request(opcode, b"data", psn=PSN, invalidate_rkey=memory.rkey)
    assert peer.answers() == []
    # The region is as usable as before.
    _, other = connect(qp.host, peer_qpn=0x99)
    other.request("RDMA_WRITE_ONLY", b"12345678", **reth(memory, 8, at=1024))
    assert other.answers() == [(PSN, ACK)]


# --- afterwards


def test_10_3_1_in_err_requests_are_dropped_without_an_answer(served):
    qp, peer, memory = served
    peer.request("RDMA_WRITE_ONLY", b"12345678", **reth(memory, 8, rkey=0xBAD00))
    assert peer.answers() == [(PSN, NAK_ACCESS)]
    for psn in (PSN, PSN + 1, PSN - 1):
        assert peer.request("RDMA_WRITE_ONLY", b"12345678", psn=psn, **reth(memory, 8)) != ""
    assert peer.answers() == []
    assert qp.counters()["rx_wrong_state"] == 3
    assert memory.bytes == bytes(4096)


def test_9_9_3_answers_that_were_due_before_the_refusal_are_still_sent(served):
    """In order: the ACK and READ response of good requests, then the NAK."""
    qp, peer, memory = served
    qp.recv(memory.sge(1024, 64), wr_id=1)
    memory.bytes[:8] = b"contents"
    peer.request("SEND_ONLY", b"fine")
    peer.request("RDMA_READ_REQUEST", **reth(memory, 8))
    peer.request("RDMA_WRITE_ONLY", b"12345678", **reth(memory, 8, rkey=0xBAD00))
    assert peer.answers() == [
        (PSN, ACK),
        (PSN + 1, "RDMA_READ_RESPONSE_ONLY", b"contents"),
        (PSN + 2, NAK_ACCESS),
    ]


def test_9_9_3_an_atomic_before_the_refusal_has_run_when_the_queue_pair_has_failed(served):
    """Behind a READ it waits for the answer to leave, but not longer than its queue pair works."""
    qp, peer, memory = served
    peer.request("RDMA_READ_REQUEST", **reth(memory, 2 * MTU))
    at = memory.address + 1024
    peer.request("FETCH_ADD", psn=PSN + 2, atomic_address=at, atomic_rkey=memory.rkey, swap_add=7)
    peer.request("RDMA_WRITE_ONLY", b"12345678", psn=PSN + 3, **reth(memory, 8, rkey=0xBAD00))
    assert qp.state == QPState.ERR
    assert memory.bytes[1024] == 7
    answers = peer.answers()
    assert [answer[0] for answer in answers] == [PSN, PSN + 1, PSN + 2, PSN + 3]
    assert answers[2:] == [(PSN + 2, "ATOMIC_ACKNOWLEDGE", 0), (PSN + 3, NAK_ACCESS)]
    assert memory.bytes[1024] == 7


def test_9_9_3_a_refusal_flushes_both_queues(served):
    qp, peer, memory = served
    for number in range(3):
        qp.recv(memory.sge(), wr_id=number)
    qp.post(send(wr_id=10), send(wr_id=11, flags=0))
    peer.take()
    peer.request("RDMA_WRITE_ONLY", b"12345678", **reth(memory, 8, rkey=0xBAD00))
    assert qp.host.receives() == [(number, FLUSHED) for number in range(3)]
    assert qp.host.sends() == [(10, FLUSHED), (11, FLUSHED)]


# --- opcodes that are reserved


def reserved(peer, opcode, psn, **fields):
    packet = peer.packet("SEND_ONLY", psn=psn, **fields)
    packet.opcode = opcode
    return peer.deliver(packet)


@pytest.mark.parametrize("qp_type", [QPType.RC, QPType.XRC_RECV])
@pytest.mark.parametrize("low_bits", [0x15, 0x18, 0x1B, 0x1E, 0x1F])
def test_9_9_3_a_reserved_opcode_is_an_invalid_request(host, qp_type, low_bits):
    target = qp_type == QPType.XRC_RECV
    qp, peer = connect(host, qp_type, xrcd=host.hca.alloc_xrcd() if target else 0)
    assert reserved(peer, (0xA0 if target else 0) | low_bits, PSN) == ""
    assert peer.answers() == [(PSN, NAK_INVALID)]
    assert qp.state == QPState.ERR
    assert host.events() == [(EventType.QP_REQ_ERR, qp.qpn)]


def test_9_9_3_a_reserved_opcode_inside_a_message_fails_its_receive(served):
    qp, peer, memory = served
    qp.recv(memory.sge(), wr_id=1)
    peer.request("SEND_FIRST", pattern(MTU), ack_request=False)
    reserved(peer, 0x15, PSN + 1)
    assert peer.answers() == [(PSN + 1, NAK_INVALID)]
    assert qp.host.receives() == [(1, WcStatus.REM_INV_REQ_ERR)]


def test_9_7_4_the_psn_of_a_reserved_opcode_comes_first(served):
    """Ahead it is a gap like any other, and what lies behind was refused or executed before."""
    qp, peer, _ = served
    reserved(peer, 0x15, PSN + 1)
    assert peer.answers() == [(PSN, NAK_SEQUENCE)]
    reserved(peer, 0x15, PSN - 1)
    assert peer.answers() == []
    assert qp.state == QPState.RTS


@pytest.mark.parametrize("opcode", [0x15, 0x35, 0x55, 0x75, 0xB5, 0xC0, 0xD5, 0xFF])
def test_9_8_2_a_reserved_opcode_that_no_reliable_connection_has_is_dropped(host, opcode):
    """Of an unreliable service, of another service than the queue pair's, of a manufacturer."""
    qp, peer = connect(host, QPType.UC if opcode < 0x40 else QPType.RC)
    assert reserved(peer, opcode, PSN) != ""
    assert peer.answers() == []
    assert qp.state == QPState.RTS
    assert host.events() == []


@pytest.mark.parametrize("field", ["pkey", "destination_qpn", "version"])
def test_9_6_a_reserved_opcode_that_is_not_for_this_queue_pair_is_dropped(served, field):
    qp, peer, _ = served
    assert reserved(peer, 0x15, PSN, **{field: 2}) != ""
    assert reserved(Peer(qp, address="10.9.0.77"), 0x15, PSN) != ""
    assert peer.answers() == []
    assert qp.state == QPState.RTS


# --- packets for somebody else


@pytest.mark.parametrize(
    ("field", "value"), [("pkey", 0x1234), ("destination_qpn", 0x123456), ("version", 1)]
)
def test_9_6_a_packet_that_is_not_for_this_queue_pair_is_dropped_in_silence(served, field, value):
    qp, peer, memory = served
    qp.recv(memory.sge())
    assert peer.request("SEND_ONLY", b"x", psn=PSN, **{field: value}) != ""
    assert peer.answers() == []
    assert qp.state == QPState.RTS
    assert qp.query().rq_psn == PSN


def test_9_6_a_packet_from_another_address_than_the_peers_is_dropped(served):
    qp, peer, memory = served
    qp.recv(memory.sge())
    stranger = Peer(qp, address="10.9.0.77")
    assert stranger.request("SEND_ONLY", b"x", psn=PSN) != ""
    assert stranger.answers() == peer.answers() == []
    assert qp.host.receives() == []


@pytest.mark.parametrize("address", ["10.9.0.77", "239.1.2.3"])
def test_9_6_a_packet_to_another_address_than_the_connections_is_dropped(served, address):
    """One to a group, for example, that this adapter is in because of a datagram queue pair."""
    qp, peer, memory = served
    qp.recv(memory.sge())
    qp.post(send(wr_id=1))
    peer.take()
    right, wrong = peer.route, Route(gid_of(peer.address), gid_of(address))
    peer.route = wrong
    assert peer.request("SEND_ONLY", b"x", psn=PSN) != ""
    assert peer.ack(0x800) != ""
    assert (qp.host.sends(), qp.host.receives(), peer.answers()) == ([], [], [])
    peer.route = right
    peer.request("SEND_ONLY", b"x", psn=PSN)
    peer.ack(0x800)
    assert (len(qp.host.sends()), len(qp.host.receives())) == (1, 1)


def test_9_6_a_packet_of_another_service_type_is_dropped(served):
    qp, peer, memory = served
    qp.recv(memory.sge())
    for prefix in ("UC", "UD", "XRC"):
        peer.prefix = prefix
        assert peer.request("SEND_ONLY", b"x", psn=PSN) != ""
    assert peer.answers() == []
    assert qp.state == QPState.RTS


def test_9_7_4_a_sequence_error_refuses_nothing_for_good(served):
    qp, peer, memory = served
    qp.recv(memory.sge())
    peer.request("SEND_ONLY", psn=PSN + 5)
    assert peer.answers() == [(PSN, NAK_SEQUENCE)]
    peer.request("SEND_ONLY", psn=PSN)
    assert peer.answers() == [(PSN, ACK)]
    assert qp.host.events() == []
