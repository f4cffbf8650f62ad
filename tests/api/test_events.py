"""Asynchronous events, armed completion queues, and what the states of a queue pair do."""

from __future__ import annotations

import errno
import select

import pytest

import softhca as hca
from softhca import EventType, NotifyFlags, QPState, QPType, VerbsError, WcStatus

from .callbacks import PATIENCE_S
from .hosts import Host, Pair


def test_waiting_for_an_event_times_out() -> None:
    with hca.open() as device:
        assert device.poll_async_event() is None
        with pytest.raises(TimeoutError, match=r"within 0.01 s"):
            device.get_async_event(0.01)


@pytest.mark.parametrize("timeout", [0, -1, float("-inf"), -(10**400)])
def test_a_timeout_that_is_over_already(timeout: float) -> None:
    with hca.open() as device, pytest.raises(TimeoutError):
        device.get_async_event(timeout)


@pytest.mark.parametrize("timeout", [None, float("inf"), 1e300, 10**400])
def test_a_timeout_without_end(timeout: float | None) -> None:
    with hca.open() as device:
        pair = Pair(Host(device), Host(device), None)
        near, _ = pair.connected()
        near.post_send(hca.Write(pair.a.mr[:8], remote=hca.RemoteMemory(0, 1, 8)))
        assert device.get_async_event(timeout).event_type is EventType.QP_ACCESS_ERR


def test_a_timeout_that_is_no_time() -> None:
    with hca.open() as device:
        with pytest.raises(VerbsError, match="timeout=nan"):
            device.get_async_event(float("nan"))
        with pytest.raises(TypeError, match="timeout must be a number, not str"):
            device.get_async_event("1")  # type: ignore[arg-type]


def test_a_simulated_device_is_not_waited_for(device: hca.Device) -> None:
    with pytest.raises(VerbsError) as raised:
        device.get_async_event(0)
    assert raised.value.errno == errno.EOPNOTSUPP


def test_the_descriptor_is_readable_while_an_event_waits() -> None:
    with hca.open() as device:
        pair = Pair(Host(device), Host(device), None)
        near, far = pair.connected()
        poller = select.poll()
        poller.register(device.async_event_fileno(), select.POLLIN)
        assert poller.poll(0) == []
        near.post_send(hca.Write(pair.a.mr[:8], remote=hca.RemoteMemory(0, 1, 8)))
        assert not pair.completion(pair.a).ok
        assert poller.poll(1000 * PATIENCE_S)
        event = device.get_async_event(PATIENCE_S)
        assert (event.event_type, event.element) == (EventType.QP_ACCESS_ERR, far)


def test_the_descriptor_is_not_readable_any_more_when_the_object_takes_its_events_along() -> None:
    with hca.open() as device:
        pair = Pair(Host(device), Host(device), None)
        near, far = pair.connected()
        poller = select.poll()
        poller.register(device.async_event_fileno(), select.POLLIN)
        near.post_send(hca.Write(pair.a.mr[:8], remote=hca.RemoteMemory(0, 1, 8)))
        assert poller.poll(1000 * PATIENCE_S)
        far.close()
        assert poller.poll(0) == []
        assert device.poll_async_event() is None


def test_waiting_for_an_armed_completion_queue() -> None:
    with hca.open() as a, hca.open() as b:
        pair = Pair(Host(a), Host(b), None)
        near, far = pair.connected()
        far.post_recv(hca.Recv(pair.b.mr[:8]))
        assert pair.b.cq.req_notify(NotifyFlags.NEXT_COMP) == 0
        channel = pair.b.cq.channel
        with pytest.raises(TimeoutError):
            channel.get_event(0)
        near.post_send(hca.Send(pair.a.mr[:8]))
        assert channel.get_event(PATIENCE_S) is pair.b.cq
        assert [wc.byte_len for wc in pair.b.cq.poll()] == [8]
        assert channel.poll_event() is None  # One event for one arming.
        pair.b.cq.ack_events(1)


def test_communication_is_established_by_the_first_packet(simulated: Pair) -> None:
    near, far = simulated.a.qp(), simulated.b.qp()
    near.connect(far.info())
    info = near.info()
    far.modify(
        qp_state=QPState.INIT, pkey_index=0, port_num=1, qp_access_flags=hca.Access.REMOTE_WRITE
    )
    far.modify(
        qp_state=QPState.RTR,
        ah_attr=hca.AHAttr(dgid=info.gid),
        path_mtu=info.mtu,
        dest_qp_num=info.qpn,
        rq_psn=info.psn,
        max_dest_rd_atomic=1,
        min_rnr_timer=12,
    )
    near.post_send(hca.Write(remote=simulated.b.mr.remote(), signaled=True))
    assert simulated.completion(simulated.a).ok
    event = simulated.event(simulated.b)
    assert (event.event_type, event.element) == (EventType.COMM_EST, far)


@pytest.mark.parametrize("armed", ["when it is made", "later"])
def test_srq_limit_fires_once_when_fewer_are_left(simulated: Pair, armed: str) -> None:
    later = armed == "later"
    srq = simulated.b.keep(simulated.b.pd.create_srq(max_wr=8, srq_limit=0 if later else 3))
    near, far = simulated.a.qp(), simulated.b.qp(srq=srq)
    near.connect(far.info())
    far.connect(near.info())
    srq.post_recv([hca.Recv(wr_id=i) for i in range(4)])
    if later:
        srq.modify(srq_limit=3)
    assert srq.query().srq_limit == 3
    near.post_send(hca.Send(signaled=True))
    simulated.completion(simulated.a)
    assert simulated.b.device.poll_async_event() is None  # Three are left: not fewer than three.
    near.post_send([hca.Send(signaled=True)] * 2)
    simulated.completions(simulated.a, 2)
    event = simulated.event(simulated.b)
    assert (event.event_type, event.element) == (EventType.SRQ_LIMIT_REACHED, srq)
    assert simulated.b.device.poll_async_event() is None
    assert srq.query().srq_limit == 0


def test_an_overflown_queue_stops_its_queue_pairs(simulated: Pair) -> None:
    small = simulated.a.keep(simulated.a.device.create_cq(1))
    near = simulated.a.qp(send_cq=small, max_send_wr=64)
    far = simulated.b.qp()
    near.connect(far.info())
    far.connect(near.info())
    capacity = small.cqe
    writes = [hca.Write(remote=simulated.b.mr.remote(), signaled=True)] * (capacity + 1)
    near.post_send(writes)
    event = simulated.event(simulated.a)
    assert (event.event_type, event.element) == (EventType.CQ_ERR, small)
    assert near.state is QPState.ERR
    assert len(small.poll(capacity + 1)) == capacity


def test_arming_reports_what_waits_already(simulated: Pair) -> None:
    near, _ = simulated.connected()
    cq = simulated.a.cq
    both = NotifyFlags.NEXT_COMP | NotifyFlags.REPORT_MISSED_EVENTS
    assert cq.req_notify(both) == 0
    near.post_send(hca.Write(remote=simulated.b.mr.remote(), signaled=True))
    assert simulated.wire is not None
    simulated.wire.settle()
    assert cq.req_notify(both) == 1
    assert cq.req_notify(NotifyFlags.NEXT_COMP) == 0
    assert len(cq.poll()) == 1
    assert cq.req_notify(both) == 0


def test_error_flushes_both_queues_in_order(host: Host) -> None:
    near, far = host.qp(), host.qp()
    sends = host.keep(host.device.create_cq(16))
    near = host.qp(send_cq=sends)
    near.connect(far.info())
    near.post_recv([hca.Recv(wr_id=i) for i in range(3)])
    near.post_send([hca.Send(wr_id=10 + i) for i in range(3)])
    near.modify(qp_state=QPState.ERR)
    assert [(wc.wr_id, wc.status) for wc in host.cq.poll()] == [
        (i, WcStatus.WR_FLUSH_ERR) for i in range(3)
    ]
    assert [(wc.wr_id, wc.status) for wc in sends.poll()] == [
        (10 + i, WcStatus.WR_FLUSH_ERR) for i in range(3)
    ]
    near.post_send(hca.Send(wr_id=20))
    near.post_recv(hca.Recv(wr_id=21))
    assert [wc.wr_id for wc in sends.poll() + host.cq.poll()] == [20, 21]


def test_reset_empties_the_queues_without_a_word(host: Host) -> None:
    near, far = host.qp(), host.qp()
    qpn = near.qpn
    near.connect(far.info())
    near.post_recv([hca.Recv()] * 3)
    near.modify(qp_state=QPState.RESET)
    assert host.cq.poll() == []
    near.connect(far.info())
    assert near.qpn == qpn
    near.post_recv([hca.Recv()] * near.init_attr.cap.max_recv_wr)


def test_sqd_drains_and_says_so(simulated: Pair) -> None:
    near, _ = simulated.connected()
    near.post_send(hca.Write(remote=simulated.b.mr.remote(), wr_id=1, signaled=True))
    assert simulated.wire is not None
    simulated.wire.run_for(100)  # It has started.
    near.modify(qp_state=QPState.SQD, en_sqd_async_notify=True)
    near.post_send(hca.Write(remote=simulated.b.mr.remote(), wr_id=2, signaled=True))
    event = simulated.event(simulated.a)
    assert (event.event_type, event.element) == (EventType.SQ_DRAINED, near)
    assert [wc.wr_id for wc in simulated.a.cq.poll()] == [1]
    assert not near.query().sq_draining
    near.modify(qp_state=QPState.RTS)
    assert simulated.completion(simulated.a).wr_id == 2


def test_a_datagram_that_fails_locally_stops_the_send_queue_only(host: Host) -> None:
    near = host.qp(QPType.UD)
    near.activate()
    near.post_recv(hca.Recv(host.mr[:100], wr_id=5))
    with host.pd.reg_mr(bytearray(8)) as gone:
        ah = host.keep(host.pd.create_ah("10.0.0.1"))
        wr = hca.Send(gone[:], ah=ah, remote_qpn=near.qpn, remote_qkey=1, wr_id=1)
    near.post_send([wr, hca.Send(ah=ah, remote_qpn=near.qpn, wr_id=2)])
    host.device.adapter.next_packet(0)
    assert [(wc.wr_id, wc.status) for wc in host.cq.poll()] == [
        (1, WcStatus.LOC_PROT_ERR),
        (2, WcStatus.WR_FLUSH_ERR),
    ]
    assert near.state is QPState.SQE
    near.modify(qp_state=QPState.RTS)
    assert near.state is QPState.RTS
