"""Completion queues under traffic: resizing, overflow, timestamps."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from typing import Any

import pytest

from softhca import WC, EventType, NotifyFlags, QPState, Recv, Send, VerbsError

from .hosts import Pair
from .tasks import Body

Run = Callable[[Body], Any]


# --- resizing


def test_resizing_under_traffic_keeps_content_and_order(real: Pair) -> None:
    near, far = real.connected(max_send_wr=200, max_recv_wr=200)
    cq = real.a.cq
    many = 4000
    credits = threading.Semaphore(100)

    def send() -> None:
        for number in range(many):
            credits.acquire()
            far.post_send(Send(signaled=number % 50 == 49))
            if number % 50 == 49:
                real.completion(real.b)

    near.post_recv([Recv(wr_id=number) for number in range(150)])
    sender = threading.Thread(target=send)
    sender.start()
    seen: list[int] = []
    try:
        while len(seen) < many:
            wcs = cq.poll(7)
            seen += [wc.wr_id for wc in wcs]
            near.post_recv([Recv(wr_id=150 + len(seen) - len(wcs) + i) for i in range(len(wcs))])
            if wcs:
                credits.release(len(wcs))
            cq.resize(150 + len(seen) * 37 % 200)
    finally:
        credits.release(many)
        sender.join(60)
    assert seen == list(range(many))
    assert real.a.device.poll_async_event() is None


def test_resizing_leaves_a_queue_armed(simulated: Pair) -> None:
    near, far = simulated.connected()
    channel = simulated.a.cq.channel
    simulated.a.cq.req_notify()
    simulated.a.cq.resize(8)
    near.post_recv(Recv())
    far.post_send(Send(signaled=True))
    simulated.completion(simulated.b)
    assert channel.poll_event() is simulated.a.cq
    simulated.a.cq.ack_events()


def test_resizing_below_what_waits_is_refused(simulated: Pair) -> None:
    near, far = simulated.connected(max_recv_wr=8, max_send_wr=8)
    near.post_recv([Recv(wr_id=number) for number in range(5)])
    far.post_send([Send(signaled=number == 4) for number in range(5)])
    simulated.completion(simulated.b)
    with pytest.raises(VerbsError, match="cqe=4: is below the number of completions") as raised:
        simulated.a.cq.resize(4)
    assert raised.value.errno == errno.EINVAL
    simulated.a.cq.resize(5)
    assert simulated.a.cq.cqe == 5
    assert [wc.wr_id for wc in simulated.a.cq.poll()] == list(range(5))


# --- overflow


class Small:
    """A queue for two completions, and a peer that sends more."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.cq = pair.a.keep(pair.a.device.create_cq(2))
        self.qp = pair.a.qp(send_cq=self.cq, recv_cq=self.cq, max_recv_wr=16)
        self.peer = pair.b.qp(max_send_wr=16)
        self.qp.connect(self.peer.info())
        self.peer.connect(self.qp.info())

    def overflow(self) -> None:
        """Three messages for a queue of two."""
        self.qp.post_recv([Recv(wr_id=number) for number in range(4)])
        self.peer.post_send([Send() for _ in range(3)])
        if self.pair.wire is not None:
            self.pair.wire.settle()


def test_overflow_is_told_and_stops_the_queue_pairs(simulated: Pair) -> None:
    small = Small(simulated)
    bystander, _ = simulated.connected()
    small.overflow()
    taken = {}
    while (event := simulated.a.device.poll_async_event()) is not None:
        with event:
            taken[event.event_type] = event.element
    assert taken[EventType.CQ_ERR] is small.cq
    assert taken[EventType.QP_FATAL] is small.qp
    assert small.qp.state is QPState.ERR
    assert bystander.state is QPState.RTS
    assert [wc.wr_id for wc in small.cq.poll()] == [0, 1]
    assert small.cq.poll() == []


def test_a_queue_that_overflowed_cannot_be_armed_to_sleep_for_ever(simulated: Pair) -> None:
    small = Small(simulated)
    small.overflow()
    ask = NotifyFlags.NEXT_COMP | NotifyFlags.REPORT_MISSED_EVENTS
    assert small.cq.req_notify(ask) == 1
    assert len(small.cq.poll()) == 2
    for flags in (ask, NotifyFlags.SOLICITED):
        with pytest.raises(VerbsError, match="has overflowed") as raised:
            small.cq.req_notify(flags)
        assert raised.value.errno == errno.EIO


def test_overflow_wakes_who_waits_for_something_solicited(simulated: Pair) -> None:
    small = Small(simulated)
    channel = small.cq.channel
    small.cq.req_notify(NotifyFlags.SOLICITED)
    small.overflow()
    assert channel.poll_event() is small.cq
    small.cq.ack_events()
    assert channel.poll_event() is None


def test_tasks_of_a_queue_that_overflowed_are_told(real: Pair, run_anyio: Run) -> None:
    anyio = pytest.importorskip("anyio")

    async def body() -> None:
        small = Small(real)
        told: list[int | None] = []

        async def receive() -> None:
            try:
                (await small.qp.recv()).raise_for_status()
            except VerbsError as error:
                told.append(error.errno)

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(receive)
            await anyio.wait_all_tasks_blocked()
            small.qp.modify(qp_state=QPState.ERR)  # Eight flushes, for a queue of two.
        assert told == [errno.EIO] * 8

    run_anyio(body)


# --- timestamps


def test_timestamps_are_of_the_adapters_clock_and_in_order(pair: Pair) -> None:
    near, far = pair.connected(max_send_wr=64, max_recv_wr=64)
    stamps: list[int] = []
    for _ in range(50):
        before_ns = pair.a.device.clock_ns
        far.post_recv([Recv(), Recv()])
        near.post_send([Send(signaled=True), Send(signaled=True)])
        wcs = pair.completions(pair.a, 2)
        after_ns = pair.a.device.clock_ns
        for wc in wcs:
            assert before_ns <= wc.timestamp_ns <= after_ns
        stamps += [wc.timestamp_ns for wc in wcs]
        pair.completions(pair.b, 2)
    assert stamps == sorted(stamps)
    assert stamps[0] < stamps[-1]


def test_a_queue_without_timestamps_says_0(pair: Pair) -> None:
    cq = pair.b.keep(pair.b.device.create_cq(8, timestamps=False))
    near, far = pair.a.qp(), pair.b.qp(recv_cq=cq)
    near.connect(far.info())
    far.connect(near.info())
    far.post_recv([Recv(wr_id=n) for n in range(4)])
    wcs: list[WC] = []
    near.post_send(Send())  # Found by who polls,
    pair.until(lambda: wcs.extend(cq.poll()) or len(wcs) == 1)
    cq.req_notify()
    near.post_send(Send())  # told by an event,
    pair.until(lambda: wcs.extend(cq.poll()) or len(wcs) == 2)
    far.modify(qp_state=QPState.ERR)  # and flushed.
    wcs += cq.poll()
    assert [(wc.wr_id, wc.ok) for wc in wcs] == [(0, True), (1, True), (2, False), (3, False)]
    assert [wc.timestamp_ns for wc in wcs] == [0] * 4


def test_timestamps_stay_in_order_when_threads_complete(real: Pair) -> None:
    """Posts to queue pairs in ERR complete in the posting thread, the rest in the driver's."""
    near, far = real.connected(max_send_wr=64, max_recv_wr=64)
    dead = real.a.qp(max_send_wr=64)
    dead.connect(far.info())
    dead.modify(qp_state=QPState.ERR)
    cq = real.a.cq
    rounds = 300

    def flush() -> None:
        while not ended.is_set():
            polled.acquire()
            dead.post_send(Send())

    polled, ended = threading.Semaphore(50), threading.Event()
    flusher = threading.Thread(target=flush)
    flusher.start()
    stamps: list[int] = []
    try:
        for _ in range(rounds):
            far.post_recv(Recv())
            near.post_send(Send(signaled=True))
            mine = 0
            while not mine:
                for wc in cq.poll(64):
                    stamps.append(wc.timestamp_ns)
                    mine += wc.ok
                    if not wc.ok:
                        polled.release()
            real.completion(real.b)
    finally:
        ended.set()
        polled.release()
        flusher.join(60)
    assert stamps == sorted(stamps)
