"""Callbacks that raise, post, destroy, free and close, and others that do so while one runs."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

import softhca as hca
from softhca import VerbsError
from softhca.completion import crew

from .callbacks import PATIENCE_S, THREADED, Note, Told, no_connection, passes, to_itself

CONTEXTS = [hca.PollContext.DIRECT, *THREADED]


@pytest.fixture(params=CONTEXTS, ids=lambda context: context.name)
def context(request: pytest.FixtureRequest) -> hca.PollContext:
    """Every poll context."""
    chosen: hca.PollContext = request.param
    return chosen


def run(cq: hca.CallbackCQ, told: Told, count: int) -> None:
    """Waits for callbacks; of a DIRECT queue, runs them."""
    if cq.poll_context is hca.PollContext.DIRECT:
        while len(told.wr_ids) < count:
            assert cq.process_direct() > 0
    else:
        told.wait(count)


@pytest.fixture
def unraisable(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What `sys.unraisablehook` is told."""
    reports: list[Any] = []
    monkeypatch.setattr(
        sys, "unraisablehook", lambda report: reports.append((report.exc_value, report.object))
    )
    return reports


def test_what_raises_is_reported_and_costs_nothing_else(
    context: hca.PollContext, unraisable: list[Any]
) -> None:
    class OopsError(Exception):
        pass

    with hca.open() as device:
        cq = device.alloc_cq(64, poll_context=context)
        qp = no_connection(device.alloc_pd(), cq)
        told = Told()
        raised = []

        def fail(cq: hca.CQ, wc: hca.WC) -> None:
            if wc.wr_id % 3 == 0:
                raised.append(OopsError(wc.wr_id))
                raise raised[-1]

        wrs = [hca.Recv(cqe=Note(told, fail), wr_id=wr_id) for wr_id in range(40)]
        qp.post_recv(wrs)
        run(cq, told, 40)
        assert told.wr_ids == list(range(40))
        qp.close()
        cq.free()
        assert [error for error, _ in unraisable] == raised
        for (_, where), wr_id in zip(unraisable, range(0, 40, 3), strict=True):
            assert where.cq is cq
            assert where.wc.wr_id == wr_id
            assert where.wr is wrs[wr_id]
            assert repr(wrs[wr_id]) in repr(where)


def test_a_hook_of_the_queue_is_told_instead(
    context: hca.PollContext, unraisable: list[Any]
) -> None:
    heard: list[Any] = []

    def hook(error: BaseException, wc: hca.WC, wr: object) -> None:
        heard.append((type(error), wc.wr_id, wr))
        if wc.wr_id == 1:
            raise RuntimeError("the hook itself")

    with hca.open() as device:
        cq = device.alloc_cq(64, poll_context=context, on_exception=hook)
        qp = no_connection(device.alloc_pd(), cq)
        told = Told()
        wrs = [
            hca.Recv(cqe=Note(told, lambda *_: 1 / 0), wr_id=wr_id)  # type: ignore[arg-type]
            for wr_id in range(3)
        ]
        qp.post_recv(wrs)
        run(cq, told, 3)
        qp.close()
        cq.free()
    assert heard == [(ZeroDivisionError, wr_id, wrs[wr_id]) for wr_id in range(3)]
    assert [str(error) for error, _ in unraisable] == ["the hook itself"]


def test_interrupts_reach_who_processes_after_the_batch(unraisable: list[Any]) -> None:
    with hca.open() as device:
        heard: list[BaseException] = []
        cq = device.alloc_cq(
            64, poll_context=hca.PollContext.DIRECT, on_exception=lambda *a: heard.append(a[0])
        )
        qp = no_connection(device.alloc_pd(), cq)
        told = Told()

        def interrupt(cq: hca.CQ, wc: hca.WC) -> None:
            if wc.wr_id == 3:
                raise KeyboardInterrupt
            if wc.wr_id == 5:
                raise SystemExit(5)

        qp.post_recv([hca.Recv(cqe=Note(told, interrupt), wr_id=wr_id) for wr_id in range(20)])
        with pytest.raises(KeyboardInterrupt):
            cq.process_direct()
        assert told.wr_ids == list(range(16))
        assert cq.process_direct() == 4
        assert told.wr_ids == list(range(20))
        assert not unraisable
        assert not heard


def test_interrupts_in_threads_are_reported(unraisable: list[Any]) -> None:
    with hca.open() as device:
        cq = device.alloc_cq(64)
        qp = no_connection(device.alloc_pd(), cq)
        told = Told()

        def leave(cq: hca.CQ, wc: hca.WC) -> None:
            sys.exit(1)

        qp.post_recv([hca.Recv(cqe=Note(told, leave)), hca.Recv(cqe=Note(told))])
        told.wait(2)
        qp.close()
        cq.free()
    assert [type(error) for error, _ in unraisable] == [SystemExit]


def test_a_missing_callback_is_reported(context: hca.PollContext) -> None:
    heard: list[Any] = []
    with hca.open() as device:
        cq = device.alloc_cq(64, poll_context=context, on_exception=lambda *a: heard.append(a))
        qp = no_connection(device.alloc_pd(), cq)
        told = Told()
        qp.post_recv([hca.Recv(wr_id=7), hca.Recv(cqe=Note(told))])
        run(cq, told, 1)
        qp.close()
        cq.free()
    ((error, wc, wr),) = heard
    assert isinstance(error, VerbsError)
    assert error.argument == "cqe"
    assert wc.wr_id == 7
    assert wr is None


def test_posting_in_a_callback_goes_on_for_ever(context: hca.PollContext) -> None:
    with hca.open() as device:
        cq = device.alloc_cq(64, poll_context=context)
        qp = no_connection(device.alloc_pd(), cq)
        told = Told()

        def again(cq: hca.CQ, wc: hca.WC) -> None:
            if wc.wr_id < 2000:
                qp.post_send(hca.Send(cqe=note, wr_id=wc.wr_id + 1))

        note = Note(told, again)
        qp.post_send(hca.Send(cqe=note))
        run(cq, told, 2001)
        assert told.wr_ids == list(range(2001))
        assert not told.overlaps


def test_a_queue_pair_destroyed_in_a_callback_calls_back_no_more(context: hca.PollContext) -> None:
    with hca.open() as device:
        cq = device.alloc_cq(256, poll_context=context)
        pd = device.alloc_pd()
        doomed, other = no_connection(pd, cq), no_connection(pd, cq)
        told, others = Told(), Told()

        def destroy(cq: hca.CQ, wc: hca.WC) -> None:
            if wc.wr_id == 5:
                doomed.close()

        hold, held = threading.Event(), threading.Event()
        direct = context is hca.PollContext.DIRECT

        def wait(*_: object) -> None:
            held.set()
            assert direct or passes(hold)

        other.post_recv(hca.Recv(cqe=Note(others, wait), wr_id=100))
        assert direct or passes(held)
        for wr_id in range(100):
            doomed.post_recv(hca.Recv(cqe=Note(told, destroy), wr_id=wr_id))
            other.post_recv(hca.Recv(cqe=Note(others), wr_id=wr_id))
        hold.set()
        run(cq, others, 101)
        assert others.wr_ids == [100, *range(100)]
        assert told.wr_ids == [0, 1, 2, 3, 4, 5]
        assert told.forgotten == 94
        assert device.adapter.cqes_under_way == 0


def test_a_queue_freed_in_its_own_callback(context: hca.PollContext) -> None:
    with hca.open() as device:
        cq = device.alloc_cq(256, poll_context=context)
        qp = no_connection(device.alloc_pd(), cq)
        told = Told()
        freed = threading.Event()

        def free(cq: hca.CQ, wc: hca.WC) -> None:
            if wc.wr_id == 2:
                with pytest.raises(VerbsError, match="still used by"):
                    cq.close()
                qp.close()
                cq.close()
                freed.set()

        qp.post_recv([hca.Recv(cqe=Note(told, free), wr_id=wr_id) for wr_id in range(60)])
        if context is hca.PollContext.DIRECT:
            cq.process_direct()
        else:
            assert passes(freed)
        cq.free()
        assert cq.closed
        told.wait(3)
        assert told.wr_ids == [0, 1, 2]
        assert told.forgotten == 57
        with pytest.raises(VerbsError, match="is closed"):
            cq.resize(16)


def test_a_device_closed_in_a_callback(context: hca.PollContext) -> None:
    device = hca.open()
    cq = device.alloc_cq(256, poll_context=context)
    qp = no_connection(device.alloc_pd(), cq)
    told = Told()

    def close(*_: object) -> None:
        device.__exit__(None, None, None)

    qp.post_recv([hca.Recv(cqe=Note(told, close), wr_id=wr_id) for wr_id in range(60)])
    if context is hca.PollContext.DIRECT:
        cq.process_direct()
    told.wait(1)
    assert device.closed
    assert cq.closed
    assert qp.closed
    assert told.wr_ids == [0]
    assert told.forgotten == 59


@pytest.mark.parametrize("context", THREADED)
def test_free_waits_for_the_callback_of_another_thread(context: hca.PollContext) -> None:
    with hca.open() as device:
        cq = device.alloc_cq(256, poll_context=context)
        qp = no_connection(device.alloc_pd(), cq)
        told = Told()
        inside, freeing, freed = (threading.Event() for _ in range(3))
        seen: list[bool] = []

        def wait(*_: object) -> None:
            inside.set()
            passes(freeing)
            qp.close()  # While somebody waits in free(): no lock is held there.
            while not cq.closed:  # The other thread has begun; it cannot have ended.
                pass
            seen.append(freed.is_set())

        def free() -> None:
            assert passes(inside)
            freeing.set()
            while not qp.closed:
                pass
            cq.free()
            freed.set()

        other = threading.Thread(target=free)
        other.start()
        qp.post_recv([hca.Recv(cqe=Note(told, wait), wr_id=wr_id) for wr_id in range(60)])
        assert passes(freed)
        other.join()
        assert told.wr_ids == [0]
        assert seen == [False]
        assert told.forgotten == 59


@pytest.mark.parametrize("context", THREADED[1:])
def test_two_callbacks_free_each_others_queues(context: hca.PollContext) -> None:
    with hca.open() as device:
        pd = device.alloc_pd()
        cqs = [device.alloc_cq(64, poll_context=context) for _ in range(2)]
        qps = [no_connection(pd, cq) for cq in cqs]
        both = threading.Barrier(2)
        told = Told()

        def free_other(cq: hca.CQ, wc: hca.WC) -> None:
            both.wait(30)
            qps[1 - wc.wr_id].close()
            both.wait(30)
            cqs[1 - wc.wr_id].free()

        for number, qp in enumerate(qps):
            qp.post_recv(hca.Recv(cqe=Note(told, free_other), wr_id=number))
        told.wait(2)
        assert all(cq.closed for cq in cqs)


def test_closing_a_device_does_not_hold_up_callbacks_that_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Joining threads holds no lock that their callbacks need."""
    monkeypatch.setattr(crew, "LONGEST_WAIT_S", PATIENCE_S)
    device = hca.open()
    pd = device.alloc_pd()
    qp = no_connection(pd, device.alloc_cq(16))
    with hca.open() as other:
        kept = other.alloc_pd()
        told = Told()
        inside = threading.Event()

        def close_something(*_: object) -> None:
            inside.set()
            while not device.closed:
                pass
            kept.close()

        qp.post_recv(hca.Recv(cqe=Note(told, close_something)))
        assert passes(inside)
        device.__exit__(None, None, None)
        assert kept.closed  # Its callback ended before the threads were given up.
        assert told.wr_ids == [0]


def test_closing_a_direct_queue_that_another_thread_processes_is_refused() -> None:
    with hca.open() as device:
        cq = device.alloc_cq(16, poll_context=hca.PollContext.DIRECT)
        qp = no_connection(device.alloc_pd(), cq)
        inside, leave = threading.Event(), threading.Event()
        told = Told()

        def wait(*_: object) -> None:
            inside.set()
            passes(leave)

        qp.post_recv(hca.Recv(cqe=Note(told, wait)))
        thread = threading.Thread(target=cq.process_direct)
        thread.start()
        assert passes(inside)
        qp.close()
        with pytest.raises(VerbsError, match=r"in process_direct\(\) \(EBUSY\)"):
            cq.free()
        with pytest.raises(VerbsError, match="callbacks of it are running"):
            cq.process_direct()
        leave.set()
        thread.join()
        cq.free()


def test_sends_in_both_directions_within_callbacks(context: hca.PollContext) -> None:
    """A ping-pong that lives in callbacks alone."""
    with hca.open() as device:
        pd = device.alloc_pd()
        cq = device.alloc_cq(64, poll_context=context)
        buffer = bytearray(64)
        mr = pd.reg_mr(buffer)
        near, far = to_itself(pd, cq, max_send_wr=512)
        told = Told()
        other = {near.qpn: far, far.qpn: near}

        def answer(cq: hca.CQ, wc: hca.WC) -> None:
            assert wc.ok, wc
            if wc.wr_id < 500:
                at, to = other[wc.qp_num], device._qps[wc.qp_num]
                at.post_recv(hca.Recv(mr[:8], cqe=note, wr_id=wc.wr_id + 1))
                to.post_send(hca.Send(mr[8:16]))

        note = Note(told, answer)
        far.post_recv(hca.Recv(mr[:8], cqe=note))
        near.post_send(hca.Send(mr[8:16]))
        if context is hca.PollContext.DIRECT:
            while len(told.wr_ids) < 501:
                cq.process_direct()
        told.wait(501)
        assert told.wr_ids == list(range(501))
