"""IBTA Vol 1, 10.2.9: shared receive queues, their limit, and who takes from them."""

from __future__ import annotations

import errno

import pytest

from softhca._adapter import (
    EventType,
    QPState,
    QPType,
    RecvWr,
    SrqAttr,
    SRQAttrMask,
    WcStatus,
)

from .host import Qp, errno_of
from .peer import ACK, NAK_OPERATIONAL, connect, rnr

SUCCESS, FLUSHED = WcStatus.SUCCESS, WcStatus.WR_FLUSH_ERR


@pytest.fixture
def shared(host):
    """(host, srq, memory, two connected (qp, peer))"""
    srq = host.srq(max_wr=8)
    pairs = [connect(host, srq=srq, path_mtu=1, peer_qpn=n) for n in (0x11, 0x22)]
    return host, srq, host.memory(8192), pairs


def post(host, srq, *wr_ids, sges=()):
    host.hca.post_srq_recv(srq, [RecvWr(list(sges), wr_id=n) for n in wr_ids])


def arm(host, srq, limit):
    attr = SrqAttr()
    attr.srq_limit = limit
    host.hca.modify_srq(srq, attr, int(SRQAttrMask.LIMIT))


def limit_events(host, srq):
    return [event for event in host.events() if event == (EventType.SRQ_LIMIT_REACHED, srq)]


def test_10_2_9_queue_pairs_take_receives_in_the_order_they_ask(shared):
    host, srq, _, ((one, peer_one), (two, peer_two)) = shared
    post(host, srq, 1, 2, 3)
    peer_two.request("SEND_ONLY")
    peer_one.request("SEND_ONLY")
    peer_two.request("SEND_ONLY")
    assert [(wc.wr_id, wc.qp_num) for wc in host.recv_wcs()] == [
        (1, two.qpn),
        (2, one.qpn),
        (3, two.qpn),
    ]


def test_10_2_9_a_receive_is_taken_at_the_first_packet_and_kept_to_the_last(shared):
    host, srq, memory, ((one, peer_one), (two, peer_two)) = shared
    post(host, srq, 1, sges=[memory.sge(0, 1000)])
    post(host, srq, 2, sges=[memory.sge(1000, 1000)])
    peer_one.request("SEND_FIRST", b"A" * 256)
    peer_two.request("SEND_ONLY", b"between")
    peer_one.request("SEND_LAST", b"end")
    assert [(wc.wr_id, wc.qp_num) for wc in host.recv_wcs()] == [(2, two.qpn), (1, one.qpn)]
    assert memory.bytes[:259] == b"A" * 256 + b"end"
    assert memory.bytes[1000:1007] == b"between"


def test_10_2_9_an_empty_shared_queue_means_not_ready(shared):
    host, srq, _, ((_, peer), _) = shared
    peer.request("SEND_ONLY", psn=0x100)
    assert peer.answers() == [(0x100, rnr(12))]
    post(host, srq, 1)
    peer.request("SEND_ONLY", psn=0x100)
    assert peer.answers() == [(0x100, ACK)]


def test_10_2_9_a_queue_pair_with_a_shared_queue_takes_no_receives_of_its_own(shared):
    _, _, memory, ((qp, _), _) = shared
    assert errno_of(qp.recv, memory.sge()) == errno.EINVAL
    assert qp.query().cap.max_recv_wr == 0


def test_10_2_9_flushing_a_queue_pair_leaves_the_shared_queue_alone(shared):
    host, srq, _, ((one, _), (two, peer_two)) = shared
    post(host, srq, 1, 2)
    one.modify(qp_state=QPState.ERR)
    assert host.receives() == []
    peer_two.request("SEND_ONLY")
    peer_two.request("SEND_ONLY")
    assert [(wc.wr_id, wc.qp_num) for wc in host.recv_wcs()] == [(1, two.qpn), (2, two.qpn)]


def test_10_3_1_7_a_receive_that_was_taken_is_flushed_with_its_queue_pair(shared):
    host, srq, memory, ((one, peer_one), _) = shared
    post(host, srq, 1, 2, sges=[memory.sge()])
    peer_one.request("SEND_FIRST", bytes(256))
    one.modify(qp_state=QPState.ERR)
    assert host.receives() == [(1, FLUSHED)]


def test_11_6_2_last_wqe_reached_when_a_queue_pair_enters_err(shared):
    host, srq, memory, ((one, peer_one), _) = shared
    post(host, srq, 1, sges=[memory.sge()])
    peer_one.request("SEND_FIRST", bytes(256))
    assert host.events() == []
    one.modify(qp_state=QPState.ERR)
    assert host.events() == [(EventType.QP_LAST_WQE_REACHED, one.qpn)]


def test_11_6_2_a_queue_pair_with_receives_of_its_own_raises_no_last_wqe(host):
    qp, _ = connect(host)
    qp.modify(qp_state=QPState.ERR)
    assert host.events() == []


# --- the limit


def test_10_2_9_the_limit_event_comes_when_fewer_than_the_limit_are_left(shared):
    """Below, not at: a queue of four with limit two tells at the third message."""
    host, srq, _, ((_, peer), _) = shared
    post(host, srq, *range(4))
    arm(host, srq, 2)
    peer.request("SEND_ONLY")
    peer.request("SEND_ONLY")
    assert limit_events(host, srq) == []
    peer.request("SEND_ONLY")
    assert limit_events(host, srq) == [(EventType.SRQ_LIMIT_REACHED, srq)]


def test_10_2_9_the_limit_event_comes_once_and_disarms(shared):
    host, srq, _, ((_, peer), _) = shared
    post(host, srq, *range(6))
    arm(host, srq, 5)
    for _ in range(6):
        peer.request("SEND_ONLY")
    assert len(limit_events(host, srq)) == 1
    assert host.hca.query_srq(srq).srq_limit == 0
    post(host, srq, *range(6))
    peer.request("SEND_ONLY")
    assert limit_events(host, srq) == []
    arm(host, srq, 5)
    peer.request("SEND_ONLY")
    assert len(limit_events(host, srq)) == 1


def test_10_2_9_a_limit_of_0_disarms(shared):
    host, srq, _, ((_, peer), _) = shared
    post(host, srq, 1, 2)
    arm(host, srq, 2)
    arm(host, srq, 0)
    peer.request("SEND_ONLY")
    assert limit_events(host, srq) == []


def test_10_2_9_armed_when_already_below_it_fires_at_the_next_receive_at_the_latest(shared):
    host, srq, _, ((_, peer), _) = shared
    post(host, srq, 1, 2)
    arm(host, srq, 5)
    peer.request("SEND_ONLY")
    assert len(limit_events(host, srq)) == 1


def test_10_2_9_query_gives_the_armed_limit(shared):
    host, srq, _, _ = shared
    arm(host, srq, 3)
    attr = host.hca.query_srq(srq)
    assert attr.srq_limit == 3
    assert attr.max_wr >= 8


def test_10_2_9_a_limit_that_could_never_be_kept_is_refused(shared):
    host, srq, _, _ = shared
    most = host.hca.query_srq(srq).max_wr
    assert errno_of(arm, host, srq, most + 1) == errno.EINVAL
    arm(host, srq, most)


# --- sizes


def test_10_2_9_exactly_as_many_receives_fit_as_was_granted(shared):
    host, srq, _, _ = shared
    most = host.hca.query_srq(srq).max_wr
    post(host, srq, *range(most))
    assert errno_of(post, host, srq, 99) == errno.ENOMEM


def test_10_2_9_exactly_as_many_entries_fit_as_was_granted(shared):
    host, srq, memory, _ = shared
    most = host.hca.query_srq(srq).max_sge
    post(host, srq, 1, sges=[memory.sge(0, 1)] * most)
    assert errno_of(post, host, srq, 2, sges=[memory.sge(0, 1)] * (most + 1)) == errno.EINVAL


@pytest.mark.parametrize(("name", "limit"), [("max_wr", "max_srq_wr"), ("max_sge", "max_srq_sge")])
def test_11_2_3_what_is_reported_can_be_had_and_one_more_cannot(host, name, limit):
    most = host.hca.limits()[limit]
    srq = host.srq(**{name: most})
    assert getattr(host.hca.query_srq(srq), name) >= most
    assert errno_of(host.srq, **{name: most + 1}) == errno.EINVAL


def test_11_2_3_resizing_is_not_offered_and_refused(shared):
    host, srq, _, _ = shared
    attr = SrqAttr()
    attr.max_wr = 4
    assert errno_of(host.hca.modify_srq, srq, attr, int(SRQAttrMask.MAX_WR)) == errno.EINVAL
    assert errno_of(host.hca.modify_srq, srq, attr, 1 << 5) == errno.EINVAL
    assert host.hca.query_srq(srq).max_wr >= 8


def test_11_2_3_a_shared_queue_in_use_is_busy(shared):
    host, srq, _, pairs = shared
    assert errno_of(host.hca.destroy_srq, srq) == errno.EBUSY
    for qp, _ in pairs:
        qp.destroy()
    host.hca.destroy_srq(srq)
    assert errno_of(host.hca.query_srq, srq) == errno.EINVAL


# --- protection


def test_10_2_9_receives_are_checked_against_the_shared_queues_domain(host):
    """The domain of the queue, not of the queue pair, holds its buffers."""
    pd = host.hca.alloc_pd()
    srq = host.srq(pd=pd)
    _, peer = connect(host, srq=srq)
    inside = host.memory(64, pd=pd)
    post(host, srq, 1, sges=[inside.sge()])
    peer.request("SEND_ONLY", b"inside")
    assert peer.answers() == [(0x100, ACK)]
    assert inside.bytes[:6] == b"inside"
    outside = host.memory(64)
    post(host, srq, 2, sges=[outside.sge()])
    peer.request("SEND_ONLY", b"outside")
    assert peer.answers() == [(0x101, NAK_OPERATIONAL)]
    assert outside.bytes == bytes(64)
    assert host.receives() == [(1, SUCCESS), (2, WcStatus.LOC_PROT_ERR)]


@pytest.mark.parametrize("qp_type", [QPType.UC, QPType.UD], ids=str)
def test_10_2_9_unreliable_queue_pairs_take_from_it_too(host, qp_type):
    srq = host.srq()
    qp, peer = connect(host, qp_type, srq=srq, qkey=5)
    memory = host.memory(256)
    post(host, srq, 1, sges=[memory.sge()])
    peer.request("SEND_ONLY", b"x", qkey=5)
    assert [(wc.wr_id, wc.qp_num) for wc in host.recv_wcs()] == [(1, qp.qpn)]


@pytest.mark.parametrize("end", ["a gap", "a message that begins", "a wrong length"])
def test_9_9_3_a_shared_receive_of_a_message_that_breaks_off_is_not_kept_from_others(host, end):
    """Class E: it completes as aborted, and the queue pair that had taken it goes on."""
    srq = host.srq()
    pairs = [connect(host, QPType.UC, srq=srq, path_mtu=1, peer_qpn=n) for n in (0x11, 0x22)]
    (one, peer_one), (_, peer_two) = pairs
    post(host, srq, 1, 2, sges=[host.memory(1024).sge()])
    peer_one.request("SEND_FIRST", bytes(256))
    if end == "a gap":
        peer_one.request("SEND_LAST", b"x", psn=0x103)
    elif end == "a wrong length":
        peer_one.request("SEND_MIDDLE", b"x")
    else:
        peer_one.request("RDMA_WRITE_ONLY", virtual_address=0, rkey=0, dma_length=0)
    assert [(wc.wr_id, wc.status, wc.qp_num) for wc in host.recv_wcs()] == [
        (1, WcStatus.REM_ABORT_ERR, one.qpn)
    ]
    assert one.state == QPState.RTS
    peer_two.request("SEND_ONLY", b"x")
    assert host.receives() == [(2, SUCCESS)]
    post(host, srq, 3)
    peer_one.request("SEND_ONLY", psn=0x110)
    assert host.receives() == [(3, SUCCESS)]
    assert host.events() == []


@pytest.mark.parametrize("qp_type", [QPType.UC, QPType.UD], ids=str)
def test_9_9_3_a_shared_receive_that_is_too_small_is_a_local_length_error(host, qp_type):
    srq = host.srq()
    qp, peer = connect(host, qp_type, srq=srq, qkey=5)
    post(host, srq, 1, sges=[host.memory(8).sge()])
    peer.request("SEND_ONLY", b"123456789", qkey=5)
    assert host.receives() == [(1, WcStatus.LOC_LEN_ERR)]
    assert qp.state == QPState.RTS
    post(host, srq, 2, sges=[host.memory(64).sge()])
    peer.request("SEND_ONLY", b"123456789", qkey=5)
    assert host.receives() == [(2, SUCCESS)]


def test_11_2_4_a_shared_queue_that_is_none_is_refused(host):
    assert errno_of(Qp, host, srq=0x7777) == errno.EINVAL
