"""IBTA Vol 1, annex A14: an XRC target finds the shared receive queue in each packet."""

from __future__ import annotations

import errno

import pytest

from softhca._adapter import EventType, QPState, QPType, RecvWr, WcOpcode, WcStatus

from .host import Qp, errno_of, fetch_add, pattern, read, send, write
from .peer import ACK, NAK_ACCESS, NAK_INVALID, connect, rnr

SUCCESS = WcStatus.SUCCESS


class Domain:
    """An XRC domain with one shared receive queue, its CQ, and a target queue pair."""

    def __init__(self, host):
        self.host = host
        self.xrcd = host.hca.alloc_xrcd()
        self.cq = host.hca.create_cq(64)
        self.srq = host.srq(xrcd=self.xrcd, cq=self.cq)
        self.srqn = host.hca.srq_number(self.srq)
        self.qp, self.peer = connect(host, QPType.XRC_RECV, xrcd=self.xrcd, path_mtu=1)

    def post(self, *wr_ids, sges=(), srq=None):
        wrs = [RecvWr(list(sges), wr_id=wr_id) for wr_id in wr_ids]
        self.host.hca.post_srq_recv(self.srq if srq is None else srq, wrs)

    def receives(self, cq=None):
        from softhca._adapter import Completion

        return self.host.hca.poll_cq(self.cq if cq is None else cq, 64, Completion)


@pytest.fixture
def domain(host):
    return Domain(host)


def test_a14_a_send_lands_in_the_shared_queue_that_it_names(domain):
    memory = domain.host.memory(4096)
    other_cq = domain.host.hca.create_cq(16)
    other = domain.host.srq(xrcd=domain.xrcd, cq=other_cq)
    domain.post(1, sges=[memory.sge(0, 1000)])
    domain.post(2, sges=[memory.sge(1000, 1000)], srq=other)
    domain.peer.request("SEND_ONLY", b"to the other", xrc_srqn=domain.host.hca.srq_number(other))
    domain.peer.request("SEND_FIRST", pattern(256), xrc_srqn=domain.srqn)
    domain.peer.request("SEND_LAST", b"end", xrc_srqn=domain.srqn)
    assert [answer[1] for answer in domain.peer.answers()] == [ACK]
    (wc,) = domain.receives(other_cq)
    assert (wc.wr_id, wc.qp_num, wc.byte_len) == (2, domain.qp.qpn, 12)
    (wc,) = domain.receives()
    assert (wc.wr_id, wc.qp_num, wc.byte_len) == (1, domain.qp.qpn, 259)
    assert memory.bytes[:259] == pattern(256) + b"end"
    assert memory.bytes[1000:1012] == b"to the other"


@pytest.mark.parametrize("kind", ["no queue", "a basic queue", "another domain's"])
def test_a14_a_wrong_srq_number_is_an_invalid_request(domain, kind):
    host = domain.host
    srqn = 0x7777
    if kind == "a basic queue":
        srqn = host.hca.srq_number(host.srq())
    elif kind == "another domain's":
        srqn = Domain(host).srqn
    domain.peer.request("SEND_ONLY", b"x", xrc_srqn=srqn)
    assert domain.peer.answers() == [(0x100, NAK_INVALID)]
    assert domain.qp.state == QPState.ERR
    assert (EventType.QP_REQ_ERR, domain.qp.qpn) in host.events()


@pytest.mark.parametrize("operation", ["SEND", "RDMA_WRITE"])
def test_a14_a_message_that_names_another_queue_on_its_way_is_an_invalid_request(domain, operation):
    """It has one destination: the domain that allows a WRITE is that of whoever hears of it."""
    host = domain.host
    other_cq = host.hca.create_cq(16)
    other = host.srq(xrcd=domain.xrcd, cq=other_cq)
    memory = host.memory(600)
    domain.post(1, sges=[memory.sge(0, 600)])
    domain.post(2, srq=other)
    fields = reth(memory, 600, domain.srqn) if operation == "RDMA_WRITE" else {}
    fields["xrc_srqn"] = domain.srqn
    domain.peer.request(f"{operation}_FIRST", pattern(256), **fields)
    domain.peer.request(f"{operation}_MIDDLE", pattern(256), xrc_srqn=domain.srqn)
    last = {"xrc_srqn": host.hca.srq_number(other), "immediate": 3}
    domain.peer.request(f"{operation}_LAST_WITH_IMMEDIATE", b"\1" * 88, **last)
    assert domain.peer.answers() == [(0x101, ACK), (0x102, NAK_INVALID)]
    assert domain.qp.state == QPState.ERR
    assert domain.receives(other_cq) == []
    # What the message had taken by then; a WRITE takes none before its immediate.
    taken = [(1, WcStatus.REM_INV_REQ_ERR)] if operation == "SEND" else []
    assert [(wc.wr_id, wc.status) for wc in domain.receives()] == taken
    assert bytes(memory.bytes[512:]) == bytes(88)


def test_a14_an_empty_shared_queue_means_not_ready(domain):
    domain.peer.request("SEND_ONLY", xrc_srqn=domain.srqn)
    assert domain.peer.answers() == [(0x100, rnr(12))]


def reth(region, length, srqn):
    return {
        "virtual_address": region.address,
        "rkey": region.rkey,
        "dma_length": length,
        "xrc_srqn": srqn,
    }


def test_a14_writes_reads_and_atomics_reach_the_shared_queues_domain(domain):
    """A target has no protection domain of its own: that of the named queue holds."""
    memory = domain.host.memory(64)
    peer = domain.peer
    peer.request("RDMA_WRITE_ONLY", b"12345678", **reth(memory, 8, domain.srqn))
    peer.request("RDMA_READ_REQUEST", **reth(memory, 8, domain.srqn))
    fields = {"atomic_address": memory.address, "atomic_rkey": memory.rkey, "swap_add": 1}
    peer.request("FETCH_ADD", xrc_srqn=domain.srqn, **fields)
    old = int.from_bytes(b"12345678", "little")
    assert peer.answers() == [
        (0x100, ACK),
        (0x101, "RDMA_READ_RESPONSE_ONLY", b"12345678"),
        (0x102, "ATOMIC_ACKNOWLEDGE", old),
    ]
    assert int.from_bytes(memory.bytes[:8], "little") == old + 1


def test_a14_a_write_of_several_packets(domain):
    memory = domain.host.memory(1024)
    fields = reth(memory, 600, domain.srqn)
    domain.peer.request("RDMA_WRITE_FIRST", pattern(600)[:256], **fields)
    domain.peer.request("RDMA_WRITE_MIDDLE", pattern(600)[256:512], xrc_srqn=domain.srqn)
    domain.peer.request("RDMA_WRITE_LAST", pattern(600)[512:], xrc_srqn=domain.srqn)
    assert domain.peer.answers() == [(0x102, ACK)]
    assert memory.bytes[:600] == pattern(600)


def test_a14_memory_of_another_domain_is_refused(domain):
    foreign = domain.host.memory(64, pd=domain.host.hca.alloc_pd())
    domain.peer.request("RDMA_WRITE_ONLY", b"12345678", **reth(foreign, 8, domain.srqn))
    assert domain.peer.answers() == [(0x100, NAK_ACCESS)]
    assert foreign.bytes == bytes(64)


def test_a14_a_write_with_immediate_completes_on_the_shared_queues_cq(domain):
    memory = domain.host.memory(64)
    domain.post(5)
    fields = reth(memory, 4, domain.srqn)
    domain.peer.request("RDMA_WRITE_ONLY_WITH_IMMEDIATE", b"data", immediate=3, **fields)
    (wc,) = domain.receives()
    assert (wc.wr_id, wc.opcode, wc.byte_len) == (5, WcOpcode.RECV_RDMA_WITH_IMM, 4)
    assert wc.immediate_or_rkey == 3
    assert memory.bytes[:4] == b"data"


def test_a14_a_target_posts_nothing(domain):
    assert errno_of(domain.qp.post, send()) == errno.EINVAL
    assert errno_of(domain.qp.recv) == errno.EINVAL


def test_a14_an_initiator_has_no_receive_queue(host):
    qp, peer = connect(host, QPType.XRC_SEND)
    assert errno_of(qp.recv) == errno.EINVAL
    assert peer.request("SEND_ONLY", b"x", xrc_srqn=1) != ""
    assert peer.take() == []
    assert qp.state == QPState.RTS


@pytest.mark.parametrize("make", [send, write, read, fetch_add])
def test_a14_an_initiator_names_the_queue_in_every_request(host, make):
    qp, peer = connect(host, QPType.XRC_SEND, path_mtu=1)
    memory = host.memory(4096)
    length = 8 if make is fetch_add else 600
    qp.post(make(memory.sge(0, length), xrc_srqn=0x123456, wr_id=1))
    packets = peer.take()
    assert {packet.xrc_srqn for packet in packets} == {0x123456}
    assert all(packet.opcode_name.startswith("XRC_") for packet in packets)
    assert [packet.psn for packet in packets] == list(range(0x800, 0x800 + len(packets)))
    if make is fetch_add:
        peer.response("ATOMIC_ACKNOWLEDGE", 0x800, atomic_original=5)
    elif make is read:
        for number, name in enumerate(("FIRST", "MIDDLE", "LAST")):
            piece = bytes(256 if number < 2 else 88)
            peer.response(f"RDMA_READ_RESPONSE_{name}", 0x800 + number, piece)
    else:
        peer.ack(packets[-1].psn)
    assert host.sends() == [(1, SUCCESS)]


def test_a14_destroying_a_target_takes_its_completions_out_of_the_shared_queues_cq(domain):
    domain.post(1, 2)
    domain.peer.request("SEND_ONLY", xrc_srqn=domain.srqn)
    domain.qp.destroy()
    assert domain.receives() == []


def test_a14_a_domain_in_use_is_busy(domain):
    hca = domain.host.hca
    assert errno_of(hca.dealloc_xrcd, domain.xrcd) == errno.EBUSY
    domain.qp.destroy()
    assert errno_of(hca.dealloc_xrcd, domain.xrcd) == errno.EBUSY
    hca.destroy_srq(domain.srq)
    hca.dealloc_xrcd(domain.xrcd)


def test_a14_a_shared_queue_of_xrc_serves_no_other_queue_pair(domain):
    assert errno_of(Qp, domain.host, srq=domain.srq) == errno.EINVAL


def test_a14_an_overflowing_shared_queues_cq_takes_its_targets_to_err(host):
    domain = Domain(host)
    small = host.hca.create_cq(1)
    srq = host.srq(xrcd=domain.xrcd, cq=small)
    domain.post(1, 2, srq=srq)
    for _ in range(host.hca.cq_capacity(small) + 1):
        domain.peer.request("SEND_ONLY", xrc_srqn=host.hca.srq_number(srq))
    assert (EventType.CQ_ERR, small) in host.events()
    assert domain.qp.state == QPState.ERR


def test_a14_a_shared_queue_whose_receive_is_being_filled_is_busy(domain):
    """Its CQ must be there when the message ends."""
    domain.post(1, sges=[domain.host.memory(1024).sge()])
    domain.peer.request("SEND_FIRST", bytes(256), xrc_srqn=domain.srqn)
    assert errno_of(domain.host.hca.destroy_srq, domain.srq) == errno.EBUSY
    domain.qp.modify(qp_state=QPState.ERR)
    assert [(wc.wr_id, wc.status) for wc in domain.receives()] == [(1, WcStatus.WR_FLUSH_ERR)]
    domain.host.hca.destroy_srq(domain.srq)
    domain.host.hca.destroy_cq(domain.cq)
