"""Takes completions in one of several ways, and never waits with a time-out."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from typing import Any

import softhca as hca
from softhca import NotifyFlags, QPInfo, QPType, Recv
from softhca.completion.awaiting import Dispatcher

from .wakeups_ledger import ARMING, CONSUMED, SLEEPS, Ledger

WINDOW = 512
REPORT = NotifyFlags.REPORT_MISSED_EVENTS


class Consumer:
    """A queue, and what it has taken so far."""

    def __init__(
        self, ledger: Ledger, qp: hca.QP, cq: hca.CQ, completions: int, draw: random.Random
    ) -> None:
        self._words = ledger.words
        self._qp = qp
        self.cq = cq
        self._completions = completions
        self.draw = draw
        self._taken = 0
        self._recv = Recv()

    @property
    def done(self) -> bool:
        """True once everything was taken."""
        return self._taken == self._completions

    def took(self, wcs: list[hca.WC]) -> None:
        """Posts as many receives as were used, then lets the producer know."""
        for wc in wcs:
            wc.raise_for_status()
        self._qp.post_recv([self._recv] * len(wcs))
        self._taken += len(wcs)
        self._words[CONSUMED] = self._taken

    def poll_some(self) -> None:
        """Polls, until the queue is empty or only nearly so.

        A poll that finds less than it asked for shows an empty queue without making progress
        itself, so that the next completion comes from the driver's thread: perhaps at once.
        """
        while True:
            wanted = self.draw.choice((1, 4, 16, 64, 64))
            wcs = self.cq.poll(wanted)
            if wcs:
                self.took(wcs)
            if not wcs or (len(wcs) < wanted and self.draw.random() < 0.7):
                return

    def dawdle(self) -> None:
        """Lets the driver's thread come to any point meanwhile."""
        if self.draw.random() < 0.5:
            for _ in range(self.draw.randrange(2000)):
                pass

    def sleeps(self) -> None:
        """Notes that it goes to sleep."""
        self._words[SLEEPS] += 1

    def may_sleep(self, careless: bool) -> bool:
        """Polls and arms in a random way; False if completions may wait without an event."""
        self.poll_some()
        self.dawdle()
        if careless:
            # Where there is one processor, nobody else would ever run just here.
            for _ in range(self.draw.randrange(20)):
                os.sched_yield()
        kind = self.draw.choice((NotifyFlags.NEXT_COMP, NotifyFlags.SOLICITED))
        report = NotifyFlags(0) if careless or self.draw.random() < 0.3 else REPORT
        self._words[ARMING] = int(kind | report)
        missed = self.cq.req_notify(kind | report)
        self.dawdle()
        if missed:
            return False
        if not report and not careless:
            # The other way: whatever came before the arming is found by a poll behind it.
            while wcs := self.cq.poll(64):
                self.took(wcs)
        self.sleeps()
        return not self.done


def _in_thread(consumer: Consumer, channel: hca.CompChannel, careless: bool) -> None:
    unacknowledged = 0
    while not consumer.done:
        if not consumer.may_sleep(careless):
            continue
        assert channel.get_event() is consumer.cq
        unacknowledged += 1
        if consumer.draw.random() < 0.1:
            consumer.cq.ack_events(unacknowledged)
            unacknowledged = 0
    consumer.cq.ack_events(unacknowledged)


async def _with_add_reader(consumer: Consumer, channel: hca.CompChannel, careless: bool) -> None:
    loop = asyncio.get_running_loop()
    finished = loop.create_future()

    def on_event() -> None:
        try:
            while (cq := channel.poll_event()) is not None:
                cq.ack_events()
            while not consumer.done and not consumer.may_sleep(careless):
                pass
            if consumer.done and not finished.done():
                finished.set_result(None)
        except BaseException as error:
            loop.remove_reader(channel.fileno())
            finished.set_exception(error)

    loop.add_reader(channel.fileno(), on_event)
    loop.call_soon(on_event)
    await finished
    loop.remove_reader(channel.fileno())


def _count_sleeps(consumer: Consumer) -> None:
    arm = Dispatcher.arm

    def arm_and_count(self: Dispatcher) -> bool:
        is_armed = arm(self)
        if is_armed:
            consumer.sleeps()
        return is_armed

    Dispatcher.arm = arm_and_count  # type: ignore[method-assign]


async def _in_tasks(consumer: Consumer) -> None:
    _count_sleeps(consumer)
    async for wc in consumer.cq:
        # Sometimes what else is there, without a task waking up for each.
        consumer.took([wc, *(consumer.cq.poll(64) if consumer.draw.random() < 0.5 else ())])
        if consumer.draw.random() < 0.05:
            consumer.dawdle()
        if consumer.done:
            return


def _run(kind: str, consumer: Consumer, channel: hca.CompChannel, careless: bool) -> None:
    if kind == "thread":
        _in_thread(consumer, channel, careless)
    elif kind == "add_reader":
        asyncio.run(_with_add_reader(consumer, channel, careless))
    elif kind == "asyncio":
        asyncio.run(_in_tasks(consumer))
    else:
        import trio

        body: Callable[..., Any] = _in_tasks
        trio.run(body, consumer)


def main(ledger: Ledger, pipe: Any, completions: int, seed: int, kind: str, careless: bool) -> None:
    """Runs in a process of its own."""
    with (
        hca.open() as device,
        device.alloc_pd() as pd,
        device.create_comp_channel() as channel,
        device.create_cq(2 * WINDOW, channel=channel) as cq,
        pd.create_qp(QPType.RC, send_cq=cq, recv_cq=cq, max_recv_wr=WINDOW) as qp,
    ):
        pipe.send(qp.info().to_bytes())
        qp.connect(QPInfo.from_bytes(pipe.recv()))
        qp.post_recv([Recv()] * WINDOW)
        consumer = Consumer(ledger, qp, cq, completions, random.Random(seed + 1))
        _run(kind, consumer, channel, careless)
        pipe.recv()  # The producer may still miss our last acknowledgement: it says when it has it.
