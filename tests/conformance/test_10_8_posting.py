"""IBTA Vol 1, 10.8.2 and 11.4.1: what posting refuses, what it copies, what a queue holds."""

from __future__ import annotations

import errno

import pytest

from softhca._adapter import (
    QPState,
    QPType,
    RecvWr,
    SendFlags,
    SendWr,
    WcStatus,
    WrOpcode,
)

from .host import Qp, errno_of, fetch_add, pattern, read, send, write
from .peer import connect, to_state

SUCCESS = WcStatus.SUCCESS
PSN = 0x800
INLINE = SendFlags.SIGNALED | SendFlags.INLINE


@pytest.fixture
def asking(host):
    qp, peer = connect(host, max_send_wr=8, max_recv_wr=8, max_sge=3, max_inline_data=64)
    return qp, peer, host.memory(4096)


# --- lists


def test_11_4_1_a_list_stops_at_its_first_bad_request_and_keeps_those_before_it(asking):
    qp, peer, memory = asking
    bad = send(*[memory.sge(0, 1)] * 4, wr_id=3)
    assert errno_of(qp.post, send(wr_id=1), send(wr_id=2), bad, send(wr_id=4)) == errno.EINVAL
    assert len(peer.take()) == 2
    peer.ack(PSN + 1)
    assert qp.host.sends() == [(1, SUCCESS), (2, SUCCESS)]
    assert qp.state == QPState.RTS


def test_11_4_1_a_refusal_names_the_request_that_was_refused(asking):
    qp, _, memory = asking
    bad = send(*[memory.sge(0, 1)] * 4, wr_id=3)
    with pytest.raises(OSError, match="num_sge") as refused:
        qp.post(send(wr_id=1), bad, send(wr_id=4))
    assert getattr(refused.value, "bad_wr", bad) is bad


def test_11_4_1_a_list_of_receives_stops_at_its_first_bad_one_too(asking):
    qp, peer, memory = asking
    wrs = [RecvWr([memory.sge(0, 8)] * (4 if n == 2 else 1), wr_id=n) for n in range(4)]
    assert errno_of(qp.host.hca.post_recv, qp.qpn, wrs) == errno.EINVAL
    for _ in range(3):
        peer.request("SEND_ONLY")
    assert qp.host.receives() == [(0, SUCCESS), (1, SUCCESS)]


def test_11_4_1_a_list_that_does_not_fit_is_posted_as_far_as_it_does(asking):
    qp, peer, _ = asking
    assert errno_of(qp.post, *(send(wr_id=n) for n in range(10))) == errno.ENOMEM
    assert len(peer.take()) == 8


# --- limits


def test_10_2_4_exactly_as_many_requests_fit_as_was_granted(asking):
    qp, peer, memory = asking
    cap = qp.query().cap
    assert cap.max_send_wr >= 8
    assert cap.max_recv_wr >= 8
    for number in range(cap.max_send_wr):
        qp.post(send(wr_id=number))
    for number in range(cap.max_recv_wr):
        qp.recv(memory.sge(), wr_id=number)
    assert errno_of(qp.post, send()) == errno.ENOMEM
    assert errno_of(qp.recv, memory.sge()) == errno.ENOMEM
    peer.take()
    peer.ack(PSN + cap.max_send_wr - 1)
    assert len(qp.host.sends()) == cap.max_send_wr


def test_10_2_4_exactly_as_many_entries_fit_as_was_granted(asking):
    qp, _, memory = asking
    cap = qp.query().cap
    qp.post(send(*[memory.sge(0, 1)] * cap.max_send_sge))
    qp.recv(*[memory.sge(0, 1)] * cap.max_recv_sge)
    assert errno_of(qp.post, send(*[memory.sge(0, 1)] * (cap.max_send_sge + 1))) == errno.EINVAL
    assert errno_of(qp.recv, *[memory.sge(0, 1)] * (cap.max_recv_sge + 1)) == errno.EINVAL


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("max_send_wr", "max_qp_wr"),
        ("max_recv_wr", "max_qp_wr"),
        ("max_sge", "max_sge"),
        ("max_inline_data", "max_inline_data"),
    ],
)
def test_10_2_4_what_is_reported_can_be_had_and_one_more_cannot(host, name, limit):
    most = host.hca.limits()[limit]
    qp = Qp(host, **{name: most})
    granted = qp.query().cap
    names = ("max_send_sge", "max_recv_sge") if name == "max_sge" else (name,)
    assert all(getattr(granted, each) >= most for each in names)
    assert errno_of(Qp, host, **{name: most + 1}) == errno.EINVAL


def test_10_7_3_unsignaled_requests_keep_their_places_until_a_completion_follows(host):
    """An application that never signals fills its queue; one that does gets the places back."""
    qp, peer = connect(host, max_send_wr=4)
    for _ in range(4):
        qp.post(send(flags=0))
    peer.take()
    peer.ack(PSN + 3)
    assert errno_of(qp.post, send()) == errno.ENOMEM
    other, peer_of_other = connect(host, max_send_wr=4, peer_qpn=0x22)
    for _ in range(3):
        other.post(send(flags=0))
    other.post(send(wr_id=9))
    peer_of_other.take()
    peer_of_other.ack(PSN + 3)
    assert host.sends() == [(9, SUCCESS)]
    other.post(*(send() for _ in range(4)))


@pytest.mark.parametrize("opcode", [WrOpcode.LOCAL_INV, WrOpcode.BIND_MW])
def test_11_4_1_what_moves_no_bytes_takes_no_buffers(asking, opcode):
    qp, peer, source = asking
    assert errno_of(qp.post, send(source.sge(0, 8), opcode=opcode)) == errno.EINVAL
    assert peer.take() == []
    assert qp.state == QPState.RTS


def test_11_4_1_unknown_flags_are_refused(asking):
    qp, _, _ = asking
    assert errno_of(qp.post, send(flags=1 << 7)) == errno.EINVAL
    assert errno_of(qp.post, send(flags=1 << 30)) == errno.EINVAL


# --- inline


@pytest.mark.parametrize("make", [send, write])
def test_10_8_5_inline_bytes_are_copied_when_they_are_posted(asking, make):
    qp, peer, memory = asking
    memory.bytes[:64] = pattern(64)
    qp.post(make(memory.sge(0, 60), memory.sge(60, 4), flags=INLINE))
    memory.bytes[:64] = bytes(64)
    (packet,) = peer.take()
    assert packet.payload == pattern(64)


def test_10_8_5_inline_needs_no_key(asking):
    qp, peer, memory = asking
    memory.bytes[:8] = b"no key!!"
    qp.post(send((memory.address, 8, 0xBAD00), flags=INLINE))
    memory.dereg()
    (packet,) = peer.take()
    assert packet.payload == b"no key!!"
    peer.ack(PSN)
    assert qp.host.sends() == [(0, SUCCESS)]


def test_10_8_5_inline_bytes_are_the_same_in_a_repeat(asking):
    qp, peer, memory = asking
    memory.bytes[:8] = b"original"
    qp.post(send(memory.sge(0, 8), flags=INLINE))
    peer.take()
    memory.bytes[:8] = b"changed!"
    qp.host.advance(10**9)
    (packet,) = peer.take()
    assert packet.payload == b"original"


def test_10_8_5_too_much_inline_is_refused_and_nothing_is_posted(asking):
    qp, peer, memory = asking
    granted = qp.query().cap.max_inline_data
    assert granted >= 64
    qp.post(send(memory.sge(0, granted), flags=INLINE))
    refusal = errno_of(qp.post, send(memory.sge(0, granted + 1), flags=INLINE))
    assert refusal in (errno.ENOMEM, errno.EINVAL)
    assert len(peer.take()) == 1


@pytest.mark.parametrize("make", [read, fetch_add])
def test_10_8_5_reads_and_atomics_have_nothing_to_send_inline(asking, make):
    qp, peer, memory = asking
    assert errno_of(qp.post, make(memory.sge(0, 8), flags=INLINE)) == errno.EINVAL
    assert peer.take() == []


# --- what a request is made of


@pytest.mark.parametrize("length", [0, 1, 255, 256, 257, 512, 513, 700])
def test_9_7_3_bytes_of_several_entries_make_one_message(host, length):
    qp, peer = connect(host, path_mtu=1)
    memory = host.memory(4096)
    content = pattern(length)
    cut, second = length // 3, length // 2
    memory.bytes[:cut] = content[:cut]
    memory.bytes[1000 : 1000 + second - cut] = content[cut:second]
    memory.bytes[2000 : 2000 + length - second] = content[second:]
    sges = [memory.sge(0, cut), memory.sge(1000, second - cut), memory.sge(2000, length - second)]
    qp.post(send(*sges))
    packets = peer.take()
    assert b"".join(packet.payload for packet in packets) == content
    assert all(len(packet.payload) == 256 for packet in packets[:-1])
    assert [packet.pad_count for packet in packets] == [-len(p.payload) % 4 for p in packets]


OPERATIONS = {
    WrOpcode.SEND: ("SEND_ONLY", "SEND_LAST"),
    WrOpcode.SEND_WITH_IMM: ("SEND_ONLY_WITH_IMMEDIATE", "SEND_LAST_WITH_IMMEDIATE"),
    WrOpcode.SEND_WITH_INV: ("SEND_ONLY_WITH_INVALIDATE", "SEND_LAST_WITH_INVALIDATE"),
    WrOpcode.RDMA_WRITE: ("RDMA_WRITE_ONLY", "RDMA_WRITE_LAST"),
    WrOpcode.RDMA_WRITE_WITH_IMM: (
        "RDMA_WRITE_ONLY_WITH_IMMEDIATE",
        "RDMA_WRITE_LAST_WITH_IMMEDIATE",
    ),
}


@pytest.mark.parametrize("opcode", OPERATIONS, ids=str)
def test_9_3_each_operation_has_its_headers(host, opcode):
    qp, peer = connect(host, path_mtu=1)
    memory = host.memory(512)
    only, last = OPERATIONS[opcode]
    fields = {
        "opcode": opcode,
        "immediate": 0x11223344,
        "invalidate_rkey": 0x55667788,
        "remote_address": 0x123456789A,
        "rkey": 0xABCDEF,
        "flags": SendFlags.SOLICITED,
    }
    qp.post(send(memory.sge(0, 8), **fields), send(memory.sge(0, 300), **fields))
    one, first, final = peer.take()
    assert one.opcode_name == f"RC_{only}"
    assert final.opcode_name == f"RC_{last}"
    writes, plain = "WRITE" in only, opcode == WrOpcode.RDMA_WRITE
    for packet in (one, first):
        if writes:
            assert (packet.virtual_address, packet.rkey) == (0x123456789A, 0xABCDEF)
            assert packet.dma_length == (8 if packet is one else 300)
    for packet in (one, final):
        if "IMMEDIATE" in only:
            assert packet.immediate == 0x11223344
        if "INVALIDATE" in only:
            assert packet.invalidate_rkey == 0x55667788
        # A plain WRITE wakes nobody, so the bit says nothing there.
        assert packet.solicited == (not plain)
    assert not first.solicited


def test_10_2_2_objects_of_a_protection_domain_keep_it_busy(host):
    pd = host.hca.alloc_pd()
    region = host.memory(64, pd=pd)
    assert errno_of(host.hca.dealloc_pd, pd) == errno.EBUSY
    region.dereg()
    qp = Qp(host, pd=pd)
    assert errno_of(host.hca.dealloc_pd, pd) == errno.EBUSY
    qp.destroy()
    srq = host.srq(pd=pd)
    assert errno_of(host.hca.dealloc_pd, pd) == errno.EBUSY
    host.hca.destroy_srq(srq)
    host.hca.dealloc_pd(pd)


def test_11_4_1_an_unknown_queue_pair_is_refused(host):
    qp = Qp(host)
    qp.destroy()
    for call in (
        lambda: qp.post(send()),
        lambda: qp.recv(),
        lambda: qp.query(),
        lambda: qp.modify(qp_state=QPState.RESET),
        qp.destroy,
    ):
        assert errno_of(call) == errno.EINVAL


def test_10_2_4_a_queue_pair_without_places_takes_nothing(host):
    qp = Qp(host, max_send_wr=0, max_recv_wr=0)
    to_state(qp, QPState.RTS)
    assert errno_of(qp.post, send()) == errno.ENOMEM
    assert errno_of(qp.recv) == errno.ENOMEM


@pytest.mark.parametrize("which", ["pd", "send_cq", "recv_cq", "srq"])
def test_11_2_4_a_queue_pair_needs_what_it_names(host, which):
    assert errno_of(Qp, host, **{which: 0x7777}) == errno.EINVAL


def test_10_2_4_max_qp_can_be_had_and_one_more_cannot():
    from .host import Host

    host = Host(limits={"max_qp": 5, "max_cq": 3, "max_pd": 2, "max_mr": 3, "max_ah": 2})
    pairs = [Qp(host) for _ in range(5)]
    assert errno_of(Qp, host) == errno.ENOMEM
    pairs[2].destroy()
    Qp(host)
    host.hca.create_cq(1)
    assert errno_of(host.hca.create_cq, 1) == errno.ENOMEM
    host.hca.alloc_pd()
    assert errno_of(host.hca.alloc_pd) == errno.ENOMEM
    regions = [host.memory(64) for _ in range(3)]
    assert errno_of(host.memory, 64) == errno.ENOMEM
    regions[0].dereg()
    host.memory(64)
    handles = [host.address_handle() for _ in range(2)]
    assert errno_of(host.address_handle) == errno.ENOMEM
    host.hca.destroy_ah(handles[0])
    host.address_handle()


def test_11_4_1_a_work_request_can_be_posted_again_and_again(asking):
    qp, peer, memory = asking
    wr = SendWr(WrOpcode.SEND, [memory.sge(0, 4)], wr_id=7, send_flags=int(SendFlags.SIGNALED))
    for turn in range(20):
        memory.bytes[:4] = turn.to_bytes(4, "big")
        qp.post(wr)
        (packet,) = peer.take()
        assert packet.payload == turn.to_bytes(4, "big")
        peer.ack(PSN + turn)
    assert qp.host.sends() == [(7, SUCCESS)] * 20


@pytest.mark.parametrize("qp_type", [QPType.RC, QPType.UC, QPType.UD], ids=str)
def test_9_3_solicited_only_where_it_is_asked_for(host, qp_type):
    qp, peer = connect(host, qp_type, qkey=1)
    more = {}
    if qp_type == QPType.UD:
        more = {"ah": host.address_handle(), "remote_qpn": 0xABC, "remote_qkey": 1}
    qp.post(send(flags=0, **more), send(flags=SendFlags.SOLICITED, **more))
    assert [packet.solicited for packet in peer.take()] == [False, True]
