"""IBTA Vol 1, 10.5 and 11.4.2: overflow, notification, solicited events, resizing, polling."""

from __future__ import annotations

import errno

import pytest

from softhca._adapter import Completion, EventType, QPState, QPType, WcStatus

from .host import Qp, errno_of, send
from .peer import ACK, NAK_ACCESS, connect

SUCCESS, FLUSHED = WcStatus.SUCCESS, WcStatus.WR_FLUSH_ERR
PSN = 0x800
SOLICITED, NEXT, REPORT_MISSED = 1, 2, 4


def wakeups(host) -> list[int]:
    """CQs whose armed waiter is to be woken."""
    taken = []
    while cq := host.channel.pop():
        taken.append(cq)
    return taken


def receive(peer, **fields):
    peer.qp.recv()
    peer.request("SEND_ONLY", **fields)
    peer.take()


def complete_send(qp, peer, **more):
    psn = qp.query().sq_psn
    qp.post(send(**more))
    peer.take()
    peer.ack(psn)


# --- sizes


def test_11_2_8_a_queue_holds_at_least_what_was_asked_for(host):
    for asked in (1, 2, 3, 100, host.hca.limits()["max_cqe"]):
        cq = host.hca.create_cq(asked)
        assert host.hca.cq_capacity(cq) >= asked
        host.hca.destroy_cq(cq)


@pytest.mark.parametrize("asked", ["none", "one too many"])
def test_11_2_8_sizes_out_of_range_are_refused(host, asked):
    cqe = 0 if asked == "none" else host.hca.limits()["max_cqe"] + 1
    assert errno_of(host.hca.create_cq, cqe) == errno.EINVAL


def test_11_2_8_a_queue_in_use_is_busy(host):
    cq = host.hca.create_cq(8)
    qp = Qp(host, send_cq=cq)
    assert errno_of(host.hca.destroy_cq, cq) == errno.EBUSY
    qp.destroy()
    host.hca.destroy_cq(cq)
    assert errno_of(host.hca.poll_cq, cq, 1, Completion) == errno.EINVAL


def test_11_4_2_1_polling_takes_as_many_as_asked_for_in_order(host):
    qp, peer = connect(host)
    for number in range(5):
        complete_send(qp, peer, wr_id=number)
    cq = host.send_cq
    assert [wc.wr_id for wc in host.hca.poll_cq(cq, 2, Completion)] == [0, 1]
    assert [wc.wr_id for wc in host.hca.poll_cq(cq, 2, Completion)] == [2, 3]
    assert [wc.wr_id for wc in host.hca.poll_cq(cq, 2, Completion)] == [4]
    assert host.hca.poll_cq(cq, 2, Completion) == []


# --- overflow


@pytest.mark.parametrize("side", ["send", "recv"])
def test_11_6_3_overflow_is_an_event_and_takes_every_user_of_the_queue_to_err(host, side):
    """A completion that does not fit is never just lost."""
    cq = host.hca.create_cq(2)
    capacity = host.hca.cq_capacity(cq)
    qp, peer = connect(host, **{f"{side}_cq": cq}, peer_qpn=0x11)
    bystander, _ = connect(host, send_cq=cq, peer_qpn=0x22)
    outsider, _ = connect(host, peer_qpn=0x33)
    for number in range(capacity + 1):
        assert qp.state == QPState.RTS
        if side == "send":
            complete_send(qp, peer, wr_id=number)
        else:
            receive(peer)
    events = host.events()
    assert (EventType.CQ_ERR, cq) in events
    assert events.count((EventType.CQ_ERR, cq)) == 1
    fatal = {number for event, number in events if event == EventType.QP_FATAL}
    assert fatal == {qp.qpn, bystander.qpn}
    assert (qp.state, bystander.state) == (QPState.ERR, QPState.ERR)
    assert outsider.state == QPState.RTS
    # What was there before is still there.
    assert len(host.hca.poll_cq(cq, 100, Completion)) == capacity


@pytest.mark.parametrize("last", ["SEND_ONLY", "SEND_LAST", "RDMA_WRITE_ONLY_WITH_IMMEDIATE"])
def test_11_6_3_what_completed_before_an_overflow_is_acknowledged(host, last):
    """And what did not is not: its sender must not think that it has been received."""
    cq = host.hca.create_cq(2)
    capacity = host.hca.cq_capacity(cq)
    qp, peer = connect(host, recv_cq=cq, peer_qpn=0x11)
    bystander, other = connect(host, recv_cq=cq, peer_qpn=0x22)
    bystander.recv()
    other.request("SEND_ONLY")
    for _ in range(capacity - 1):
        qp.recv()
        peer.request("SEND_ONLY")
    fitting = peer.psn - 1
    memory = host.memory(4096)
    qp.recv(memory.sge())
    if last == "SEND_LAST":
        peer.request("SEND_FIRST", bytes(1024), ack_request=False)
    payload = b"" if last == "RDMA_WRITE_ONLY_WITH_IMMEDIATE" else b"last"
    assert (qp.state, bystander.state) == (QPState.RTS, QPState.RTS)
    peer.request(last, payload)
    assert (qp.state, bystander.state) == (QPState.ERR, QPState.ERR)
    assert other.answers() == [(other.psn - 1, ACK)]
    assert peer.answers() == [(fitting, ACK)]
    peer.request(last, payload, psn=peer.psn - 1)
    assert peer.answers() == []


def test_11_6_3_a_queue_filled_to_the_brim_is_no_overflow(host):
    cq = host.hca.create_cq(4)
    qp, peer = connect(host, send_cq=cq)
    for turn in range(10):
        for number in range(host.hca.cq_capacity(cq)):
            complete_send(qp, peer, wr_id=number)
        assert len(host.hca.poll_cq(cq, 100, Completion)) == host.hca.cq_capacity(cq), turn
    assert host.events() == []
    assert qp.state == QPState.RTS


def test_11_6_3_a_flush_that_overflows_the_queue_ends(host):
    cq = host.hca.create_cq(2)
    qp, _ = connect(host, send_cq=cq, recv_cq=cq)
    for number in range(10):
        qp.recv(wr_id=number)
    qp.modify(qp_state=QPState.ERR)
    assert qp.state == QPState.ERR
    assert (EventType.CQ_ERR, cq) in host.events()


# --- notification


def test_11_4_2_2_armed_once_it_fires_once(host):
    qp, peer = connect(host)
    host.hca.req_notify_cq(host.send_cq, NEXT)
    assert wakeups(host) == []
    for number in range(3):
        complete_send(qp, peer, wr_id=number)
    assert wakeups(host) == [host.send_cq]
    complete_send(qp, peer)
    assert wakeups(host) == []
    host.hca.req_notify_cq(host.send_cq, NEXT)
    complete_send(qp, peer)
    assert wakeups(host) == [host.send_cq]


def test_11_4_2_2_completions_that_are_there_do_not_fire(host):
    """The event is for the next one that is added after arming."""
    qp, peer = connect(host)
    complete_send(qp, peer)
    assert host.hca.req_notify_cq(host.send_cq, NEXT) == 0
    assert wakeups(host) == []
    complete_send(qp, peer)
    assert wakeups(host) == [host.send_cq]


def test_11_4_2_2_arming_can_report_what_may_have_been_missed(host):
    qp, peer = connect(host)
    assert host.hca.req_notify_cq(host.send_cq, NEXT | REPORT_MISSED) == 0
    complete_send(qp, peer)
    assert host.hca.req_notify_cq(host.send_cq, NEXT | REPORT_MISSED) > 0
    host.send_wcs()
    assert host.hca.req_notify_cq(host.send_cq, NEXT | REPORT_MISSED) == 0


@pytest.mark.parametrize("flags", [0, 3, 4, 8, 255])
def test_11_4_2_2_flags_that_say_nothing_are_refused(host, flags):
    assert errno_of(host.hca.req_notify_cq, host.send_cq, flags) == errno.EINVAL


def test_11_4_2_2_an_unarmed_queue_stays_silent(host):
    qp, peer = connect(host)
    complete_send(qp, peer)
    receive(peer)
    assert wakeups(host) == []


def test_11_4_2_2_solicited_waits_for_a_message_that_solicits(host):
    _, peer = connect(host)
    host.hca.req_notify_cq(host.recv_cq, SOLICITED)
    receive(peer)
    receive(peer)
    assert wakeups(host) == []
    receive(peer, solicited=True)
    assert wakeups(host) == [host.recv_cq]
    receive(peer, solicited=True)
    assert wakeups(host) == []


def test_11_4_2_2_solicited_counts_on_the_last_packet(host):
    qp, peer = connect(host, path_mtu=1)
    host.hca.req_notify_cq(host.recv_cq, SOLICITED)
    qp.recv(host.memory(1024).sge())
    peer.request("SEND_FIRST", bytes(256), solicited=True)
    peer.request("SEND_LAST", b"x")
    assert wakeups(host) == []
    qp.recv(host.memory(1024).sge())
    peer.request("SEND_FIRST", bytes(256))
    peer.request("SEND_LAST", b"x", solicited=True)
    assert wakeups(host) == [host.recv_cq]


def test_11_4_2_2_a_write_with_immediate_can_solicit(host):
    qp, peer = connect(host)
    host.hca.req_notify_cq(host.recv_cq, SOLICITED)
    qp.recv()
    peer.request("RDMA_WRITE_ONLY_WITH_IMMEDIATE", solicited=True)
    assert wakeups(host) == [host.recv_cq]


@pytest.mark.parametrize("side", ["send", "recv"])
def test_11_4_2_2_any_error_counts_as_solicited(host, side):
    """Else who waits for solicited completions would sleep through the end of its connection."""
    qp, peer = connect(host)
    cq = host.send_cq if side == "send" else host.recv_cq
    host.hca.req_notify_cq(cq, SOLICITED)
    if side == "send":
        qp.post(send())
        peer.take()
        peer.ack(PSN, NAK_ACCESS)
    else:
        qp.recv()
        qp.modify(qp_state=QPState.ERR)
    assert wakeups(host) == [cq]


def test_11_4_2_2_success_of_a_send_is_not_solicited(host):
    qp, peer = connect(host)
    host.hca.req_notify_cq(host.send_cq, SOLICITED)
    complete_send(qp, peer)
    assert wakeups(host) == []


def test_11_4_2_2_arming_for_any_upgrades_and_arming_for_solicited_does_not_downgrade(host):
    _, peer = connect(host)
    cq = host.recv_cq
    host.hca.req_notify_cq(cq, SOLICITED)
    host.hca.req_notify_cq(cq, NEXT)
    receive(peer)
    assert wakeups(host) == [cq]
    host.hca.req_notify_cq(cq, NEXT)
    host.hca.req_notify_cq(cq, SOLICITED)
    receive(peer)
    assert wakeups(host) == [cq]


def test_11_4_2_2_events_say_which_queue(host):
    qp, peer = connect(host)
    host.hca.req_notify_cq(host.send_cq, NEXT)
    host.hca.req_notify_cq(host.recv_cq, NEXT)
    receive(peer)
    complete_send(qp, peer)
    assert wakeups(host) == [host.recv_cq, host.send_cq]


# --- resizing


def test_11_2_8_3_resizing_keeps_order_and_content(host):
    cq = host.hca.create_cq(8)
    qp, peer = connect(host, send_cq=cq)
    for number in range(5):
        complete_send(qp, peer, wr_id=number)
    assert [wc.wr_id for wc in host.hca.poll_cq(cq, 2, Completion)] == [0, 1]
    assert errno_of(host.hca.resize_cq, cq, 2) == errno.EINVAL
    assert host.hca.cq_capacity(cq) >= 8
    host.hca.resize_cq(cq, 3)
    host.hca.resize_cq(cq, 100)
    assert host.hca.cq_capacity(cq) >= 100
    for number in range(5, 60):
        complete_send(qp, peer, wr_id=number)
    wcs = host.hca.poll_cq(cq, 100, Completion)
    assert [wc.wr_id for wc in wcs] == list(range(2, 60))
    assert host.events() == []


@pytest.mark.parametrize("asked", ["none", "one too many"])
def test_11_2_8_3_resizing_out_of_range_is_refused(host, asked):
    cqe = 0 if asked == "none" else host.hca.limits()["max_cqe"] + 1
    assert errno_of(host.hca.resize_cq, host.send_cq, cqe) == errno.EINVAL


# --- what a completion says


def test_11_4_2_1_one_queue_may_serve_both_directions_and_many_queue_pairs(host):
    cq = host.hca.create_cq(64)
    pairs = [connect(host, send_cq=cq, recv_cq=cq, peer_qpn=n) for n in (0x11, 0x22)]
    for turn in range(3):
        for qp, peer in pairs:
            complete_send(qp, peer, wr_id=turn)
            receive(peer)
    wcs = host.hca.poll_cq(cq, 100, Completion)
    for qp, _ in pairs:
        mine = [(wc.wr_id, wc.is_receive) for wc in wcs if wc.qp_num == qp.qpn]
        assert mine == [entry for n in range(3) for entry in ((n, False), (0, True))]


def test_11_4_2_1_an_error_of_an_unsignaled_request_is_in_its_place(host):
    qp, peer = connect(host)
    qp.post(send(wr_id=1), send(wr_id=2, flags=0), send(wr_id=3))
    peer.take()
    peer.ack(PSN + 1, NAK_ACCESS)
    assert host.sends() == [(1, SUCCESS), (2, WcStatus.REM_ACCESS_ERR), (3, FLUSHED)]


def test_11_4_2_1_an_unreliable_queue_pair_completes_in_order_too(host):
    qp, peer = connect(host, QPType.UC)
    qp.post(*(send(wr_id=number) for number in range(20)))
    peer.take()
    assert host.sends() == [(number, SUCCESS) for number in range(20)]


def test_11_4_2_1_timestamps_do_not_run_backwards(host):
    """Threads read the clock before they have the adapter's lock, and may overtake each other."""
    qp, peer = connect(host)
    complete_send(qp, peer)
    host.now_ns -= 1000
    complete_send(qp, peer)
    host.now_ns += 2000
    complete_send(qp, peer)
    stamps = [wc.timestamp_ns for wc in host.send_wcs()]
    assert stamps == sorted(stamps)
    assert stamps[0] < stamps[2]
