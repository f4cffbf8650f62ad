"""Draining: when it returns, every callback has run."""

from __future__ import annotations

import errno
import threading
from typing import Any

import pytest

import softhca as hca
from softhca import PollContext, QPState, QPType, VerbsError

from .callbacks import THREADED, Note, Told, no_connection, passes, to_itself
from .hosts import Pair

CONTEXTS = [PollContext.DIRECT, *THREADED]


@pytest.fixture(params=CONTEXTS, ids=lambda context: context.name)
def context(request: pytest.FixtureRequest) -> PollContext:
    """Every poll context."""
    chosen: PollContext = request.param
    return chosen


def test_everything_posted_has_had_its_callback(pair: Pair, context: PollContext) -> None:
    cq = pair.a.device.alloc_cq(256, poll_context=context)
    near = pair.a.qp(send_cq=cq, recv_cq=cq, max_send_wr=32, max_recv_wr=32)
    near.connect(pair.b.qp(max_recv_wr=1).info())
    sent, received = Told(), Told()
    for wr_id in range(32):  # Nobody answers: the peer is not connected.
        near.post_send(hca.Send(pair.a.mr[:8], cqe=Note(sent), wr_id=wr_id))
        near.post_recv(hca.Recv(pair.a.mr[:8], cqe=Note(received), wr_id=wr_id))
    hca.drain_qp(near)
    assert sent.wr_ids == received.wr_ids == list(range(32))
    assert near.state is QPState.ERR
    assert pair.a.device.adapter.cqes_under_way == 0
    near.drain()  # Again: there is nothing left.


def test_one_side_at_a_time(pair: Pair, context: PollContext) -> None:
    device = pair.a.device
    send_cq, recv_cq = (device.alloc_cq(64, poll_context=context) for _ in range(2))
    qp = pair.a.qp(send_cq=send_cq, recv_cq=recv_cq, max_send_wr=16, max_recv_wr=16)
    qp.connect(pair.b.qp().info())
    sent, received = Told(), Told()
    for wr_id in range(16):
        qp.post_send(hca.Send(cqe=Note(sent), wr_id=wr_id))
        qp.post_recv(hca.Recv(cqe=Note(received), wr_id=wr_id))
    qp.drain_sq()
    assert sent.wr_ids == list(range(16))
    if context is PollContext.DIRECT:
        assert not received.wr_ids
    qp.drain_rq()
    assert received.wr_ids == list(range(16))


def test_a_datagram_queue_pair(pair: Pair) -> None:
    cq = pair.a.device.alloc_cq(64)
    qp = pair.a.qp(QPType.UD, send_cq=cq, recv_cq=cq)
    qp.activate()
    told = Told()
    qp.post_recv(hca.Recv(pair.a.mr[:64], cqe=Note(told)))
    qp.drain()
    assert len(told.wr_ids) == 1


def test_receives_of_an_srq_are_passed_over(pair: Pair) -> None:
    cq = pair.a.device.alloc_cq(64)
    srq = pair.a.pd.create_srq(max_wr=8)
    qp = pair.a.qp(send_cq=cq, recv_cq=cq, srq=srq)
    qp.connect(pair.b.qp().info())
    told, shared = Told(), Told()
    srq.post_recv(hca.Recv(cqe=Note(shared)))
    with pytest.raises(VerbsError, match="shared receive queue"):
        qp.drain_rq()
    assert qp.state is QPState.RTS
    qp.post_send(hca.Send(cqe=Note(told)))  # Nobody answers: from here on its retries run out.
    qp.drain()
    assert len(told.wr_ids) == 1
    assert not shared.wr_ids
    qp.close()
    srq.close()
    assert shared.forgotten == 1


def test_xrc_queue_pairs(pair: Pair) -> None:
    cq = pair.a.device.alloc_cq(64)
    sender = pair.a.qp(QPType.XRC_SEND, send_cq=cq)
    hosts = (pair.a, pair.b)
    xrcds = [host.keep(host.device.alloc_xrcd()) for host in hosts]
    target, far = (host.keep(one.create_qp()) for host, one in zip(hosts, xrcds, strict=True))
    sender.connect(far.info())
    told = Told()
    sender.post_send(hca.Send(cqe=Note(told), srqn=1))
    sender.drain()
    assert len(told.wr_ids) == 1
    with pytest.raises(VerbsError, match="no recv_cq"):
        sender.drain_rq()
    with pytest.raises(VerbsError, match="no send_cq"):
        target.drain()


def test_queues_that_do_not_call_back_are_refused(pair: Pair) -> None:
    near, _ = pair.connected()
    for drain, argument in (
        (hca.drain_sq, "send_cq"),
        (hca.drain_rq, "recv_cq"),
        (hca.drain_qp, "send_cq"),
    ):
        with pytest.raises(VerbsError, match="until nothing is left") as refused:
            drain(near)
        assert (refused.value.errno, refused.value.argument) == (errno.EINVAL, argument)
    half = pair.a.qp(send_cq=pair.a.device.alloc_cq(4))
    with pytest.raises(VerbsError) as refused:
        half.drain()
    assert refused.value.argument == "recv_cq"
    assert near.state is QPState.RTS
    assert half.state is QPState.RESET


@pytest.mark.parametrize("drain", [hca.drain_sq, hca.drain_rq, hca.drain_qp])
def test_what_is_no_queue_pair_is_refused(pair: Pair, drain: Any) -> None:
    for thing in (None, 7, pair.a.cq):
        with pytest.raises(TypeError, match=f"qp must be QP, not {type(thing).__name__}"):
            drain(thing)


def test_a_closed_queue_pair_is_refused_as_that(pair: Pair) -> None:
    near = pair.a.qp()
    near.close()
    for drain in (hca.drain_sq, hca.drain_rq, hca.drain_qp):
        with pytest.raises(VerbsError, match=r"qp: is closed \(EINVAL\)"):
            drain(near)


def test_inside_a_callback_of_the_queue_it_is_refused(pair: Pair, context: PollContext) -> None:
    cq = pair.a.device.alloc_cq(64, poll_context=context)
    near = no_connection(pair.a.pd, cq)
    other = pair.a.qp(send_cq=cq, recv_cq=cq)
    other.connect(pair.b.qp().info())
    raised: list[VerbsError] = []
    told = Told()

    def drain(*_: object) -> None:
        with pytest.raises(VerbsError) as refused:
            other.drain()
        raised.append(refused.value)

    near.post_send(hca.Send(cqe=Note(told, drain)))
    if context is PollContext.DIRECT:
        cq.process_direct()
    pair.until(lambda: told.wr_ids)
    assert raised[0].errno == errno.EDEADLK
    assert other.state is QPState.RTS
    near.drain()
    other.drain()


def test_a_softirq_vector_cannot_wait_for_itself() -> None:
    with hca.open() as device:
        pd = device.alloc_pd()
        cqs = [device.alloc_cq(16) for _ in range(2)]
        first, second = (no_connection(pd, cq) for cq in cqs)
        raised: list[VerbsError] = []
        told = Told()

        def drain(*_: object) -> None:
            with pytest.raises(VerbsError) as refused:
                second.drain()
            raised.append(refused.value)

        first.post_send(hca.Send(cqe=Note(told, drain)))
        told.wait(1)
        assert raised[0].errno == errno.EDEADLK


def test_a_work_queue_can_wait_for_another() -> None:
    with hca.open() as device:
        pd = device.alloc_pd()
        cqs = [device.alloc_cq(16, poll_context=PollContext.WORKQUEUE) for _ in range(2)]
        first, second = (no_connection(pd, cq) for cq in cqs)
        told = Told()
        first.post_send(hca.Send(cqe=Note(told, lambda *_: second.drain())))
        told.wait(1)
        first.drain()


def test_what_is_destroyed_meanwhile_does_not_hang() -> None:
    with hca.open() as device:
        pd = device.alloc_pd()
        cq = device.alloc_cq(16, poll_context=PollContext.WORKQUEUE)
        qp = no_connection(pd, cq)
        inside, leave = threading.Event(), threading.Event()
        told = Told()

        def wait(*_: object) -> None:
            inside.set()
            passes(leave)

        qp.post_send(hca.Send(cqe=Note(told, wait)))
        assert passes(inside)
        raised: list[BaseException] = []

        def drain() -> None:
            try:
                qp.drain_sq()
            except VerbsError as error:
                raised.append(error)

        thread = threading.Thread(target=drain)
        thread.start()
        while device.adapter.cqes_under_way < 1:  # The marker.
            pass
        qp.close()
        thread.join()
        leave.set()
        assert isinstance(raised[0], VerbsError)
        assert raised[0].errno == errno.ECANCELED


def test_an_overflowed_queue_does_not_hang(context: PollContext) -> None:
    with hca.open() as device:
        pd = device.alloc_pd()
        cq = device.alloc_cq(2, poll_context=PollContext.DIRECT)
        near, far = to_itself(pd, cq)
        told = Told()
        for wr_id in range(16):
            near.post_recv(hca.Recv(cqe=Note(told), wr_id=wr_id))
        for _ in range(2):
            with pytest.raises(VerbsError, match="has overflowed"):
                near.drain()
        far.close()
        near.close()
        assert told.forgotten == 16


def test_while_others_post_and_the_queue_is_busy() -> None:
    with hca.open() as device:
        pd = device.alloc_pd()
        cq = device.alloc_cq(4096)
        near, _ = to_itself(pd, cq, max_recv_wr=512)
        busy = no_connection(pd, cq)
        again = threading.Event()

        def repost(*_: object) -> None:
            if not again.is_set():
                busy.post_recv(hca.Recv(cqe=cqe))

        cqe = hca.Cqe(repost)
        busy.post_recv([hca.Recv(cqe=cqe)] * 100)
        told = Told()
        near.post_recv([hca.Recv(cqe=Note(told), wr_id=wr_id) for wr_id in range(512)])
        near.drain()
        assert told.wr_ids == list(range(512))
        again.set()
        busy.drain()


class TakenMeanwhile:
    """A lock that another thread takes each time that it was just seen free, and gives back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = False
        self.refused = 0

    def locked(self) -> bool:
        return False

    def acquire(self, blocking: bool = True) -> bool:
        self._taken = not self._taken
        self.refused += self._taken
        return not self._taken and self._lock.acquire(blocking)

    def release(self) -> None:
        self._lock.release()


def test_another_thread_processes_the_queue_in_between() -> None:
    with hca.open() as device:
        cq = device.alloc_cq(16, poll_context=PollContext.DIRECT)
        qp = no_connection(device.alloc_pd(), cq)
        told = Told()
        qp.post_recv(hca.Recv(cqe=Note(told)))
        lock = cq._processing = TakenMeanwhile()  # type: ignore[assignment]
        qp.drain()
        assert lock.refused
        assert len(told.wr_ids) == 1
