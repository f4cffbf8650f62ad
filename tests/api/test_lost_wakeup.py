"""The lost wake-up (IBTA Vol 1, 11.4.2.2), and the ways to wait that never lose it.

A completion is placed at every step of a consumer between its last poll and its sleep.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from enum import Enum
from typing import Any

import pytest

import softhca as hca
from softhca import Cqe, NotifyFlags, PollContext, Recv, Send
from softhca.completion import awaiting
from softhca.testing import Wire, open_simulated

from .hosts import Host, Pair

REPORT = NotifyFlags.REPORT_MISSED_EVENTS
ARMINGS = [NotifyFlags.NEXT_COMP, NotifyFlags.SOLICITED]
LAST_POLL, ARMED, POLLED_AGAIN, ASLEEP = "last poll", "armed", "polled again", "asleep"


class Kind(Enum):
    """A completion that is placed."""

    PLAIN = "a receive"
    SOLICITED = "a solicited receive"
    SENT = "a send"
    ERROR = "a flushed receive"


KINDS = list(Kind)


def counts(kind: Kind, arming: NotifyFlags) -> bool:
    """Whether an armed queue tells of it."""
    return arming == NotifyFlags.NEXT_COMP or kind in (Kind.SOLICITED, Kind.ERROR)


class Scene:
    """A consumer's queue, and a peer that completes something on it by order."""

    def __init__(self, a: hca.Device, b: hca.Device) -> None:
        self.pair = Pair(Host(a), Host(b), Wire(a, b))
        self.near, self.far = self.pair.connected(max_send_wr=64, max_recv_wr=64)
        self.channel = a.create_comp_channel()
        self.cq = a.create_cq(64, channel=self.channel)
        self.connect_to(self.cq)

    def connect_to(self, cq: hca.CQ) -> None:
        """Makes the consumer's queue pair complete there."""
        self.near = self.pair.a.qp(send_cq=cq, recv_cq=cq, max_send_wr=64, max_recv_wr=64)
        far = self.pair.b.qp(max_send_wr=64, max_recv_wr=64)
        self.near.connect(far.info())
        far.connect(self.near.info())
        self.far = far

    def place(self, kind: Kind, cqe: Cqe | None = None) -> None:
        """Completes one work request, now."""
        wire = self.pair.wire
        assert wire is not None
        if kind is Kind.SENT:
            self.far.post_recv(Recv())
            self.near.post_send(Send(signaled=True, cqe=cqe))
        else:
            self.near.post_recv(Recv(cqe=cqe))
            if kind is Kind.ERROR:
                self.near.modify(qp_state=hca.QPState.ERR)
            else:
                self.far.post_send(Send(solicited=kind is Kind.SOLICITED))
        wire.settle()


@contextmanager
def scene() -> Generator[Scene]:
    """Two simulated devices."""
    with (
        open_simulated("10.0.0.1", seed=1) as a,
        open_simulated("10.0.0.2", seed=2) as b,
    ):
        yield Scene(a, b)


class Consumer:
    """Polls, arms and sleeps, one step at a time."""

    def __init__(
        self, cq: hca.CQ, channel: hca.CompChannel, flags: int, poll_again: bool = False
    ) -> None:
        self.taken: list[hca.WC] = []
        self.events = 0
        self._cq = cq
        self._channel = channel
        self._flags = flags
        self._poll_again = poll_again

    def steps(self) -> Generator[str]:
        """Each value is where it stands, just before it goes on."""
        while True:
            yield "before polling"
            while wcs := self._cq.poll(1):
                self.taken += wcs
                yield "between polls"
            yield LAST_POLL
            missed = self._cq.req_notify(self._flags)
            yield ARMED
            if missed > 0:
                continue
            if self._poll_again:
                if wcs := self._cq.poll(1):
                    self.taken += wcs
                    continue
                yield POLLED_AGAIN
            yield ASLEEP
            while self._channel.poll_event() is None:
                yield ASLEEP
            self.events += 1
            self._cq.ack_events()


def place_at(step: int, kind: Kind, flags: int, *, poll_again: bool = False) -> tuple[str, bool]:
    """Lets a consumer find two completions, go to sleep, and find a third at one of its steps.

    Returns:
        Where the consumer stood, and whether it sleeps now though the third one waits.
    """
    with scene() as set_up:
        for _ in range(2):
            set_up.place(Kind.PLAIN)
        consumer = Consumer(set_up.cq, set_up.channel, flags, poll_again)
        steps = consumer.steps()
        where = ""
        for _ in range(step + 1):
            where = next(steps)
        set_up.place(kind)
        # Nothing else will ever happen: asleep twice in a row is asleep for ever.
        last = ""
        while not (last == (now := next(steps)) == ASLEEP):
            last = now
        assert len(consumer.taken) in (2, 3)
        assert consumer.events <= 1
        return where, len(consumer.taken) == 2


# Before polling, twice between polls, after the last one; armed; asleep for the first, second time.
STEPS = range(7)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("arming", ARMINGS)
def test_a_careless_consumer_is_lost_in_the_windows_of_the_specification(
    arming: NotifyFlags, kind: Kind
) -> None:
    outcomes = [place_at(step, kind, arming) for step in STEPS]
    assert [where for where, _ in outcomes] == [
        *("before polling", "between polls", "between polls"),
        *(LAST_POLL, ARMED, ASLEEP, ASLEEP),
    ]
    for where, lost in outcomes:
        if where == LAST_POLL:
            assert lost, "there must be a race"
        elif where in (ARMED, ASLEEP):
            assert lost is not counts(kind, arming), where
        else:
            assert not lost, where


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("arming", ARMINGS)
def test_with_the_flag_nothing_is_lost(arming: NotifyFlags, kind: Kind) -> None:
    for step in STEPS:
        where, lost = place_at(step, kind, arming | REPORT)
        # What it did not ask to be woken for, it sleeps through; the window itself is closed.
        assert lost is (where in (ARMED, ASLEEP) and not counts(kind, arming)), where


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("arming", ARMINGS)
def test_with_a_second_poll_nothing_is_lost(arming: NotifyFlags, kind: Kind) -> None:
    for step in STEPS:
        where, lost = place_at(step, kind, arming, poll_again=True)
        assert lost is (where in (POLLED_AGAIN, ASLEEP) and not counts(kind, arming)), where


@pytest.mark.parametrize("first", [Kind.PLAIN, Kind.SOLICITED, Kind.SENT])
def test_two_completions_anywhere(first: Kind) -> None:
    """No pair of places lets a careful consumer sleep with one of them waiting."""
    for flags, again in ((NotifyFlags.NEXT_COMP | REPORT, False), (NotifyFlags.NEXT_COMP, True)):
        for one in STEPS:
            for distance in range(5):
                with scene() as set_up:
                    consumer = Consumer(set_up.cq, set_up.channel, flags, again)
                    steps = consumer.steps()
                    for _ in range(one + 1):
                        next(steps)
                    set_up.place(first)
                    for _ in range(distance):
                        next(steps)
                    set_up.place(Kind.ERROR)
                    for _ in range(30):
                        next(steps)
                    assert len(consumer.taken) == 2, (flags, one, distance)


# --- a queue that calls back


class Step(Cqe):
    """A callback that lets something happen while it runs."""

    def __init__(self, log: list[hca.WC], during: Callable[[], None] = lambda: None) -> None:
        self._log = log
        self._during = during

    def done(self, cq: hca.CQ, wc: hca.WC) -> None:
        """Called between the poller's last poll and its arming, unless its batch was full."""
        self._log.append(wc)
        self._during()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("before", [1, 2, 15, 16, 17, 32])
@pytest.mark.parametrize(
    "poll_context", [PollContext.SOFTIRQ, PollContext.WORKQUEUE, PollContext.UNBOUND_WORKQUEUE]
)
def test_a_callback_queue_loses_nothing(poll_context: PollContext, before: int, kind: Kind) -> None:
    """A completion is placed in each callback of a row: in and around the poller's own window."""
    for at in {0, before // 2, before - 1}:
        with scene() as set_up:
            device = set_up.pair.a.device
            with device.alloc_cq(64, poll_context=poll_context) as cq:
                set_up.connect_to(cq)
                log: list[hca.WC] = []

                def place(set_up: Scene = set_up, log: list[hca.WC] = log) -> None:
                    set_up.place(kind, Step(log))

                set_up.near.post_recv(
                    [Recv(cqe=Step(log, place) if i == at else Step(log)) for i in range(before)]
                )
                set_up.far.post_send([Send() for _ in range(before)])
                wire = set_up.pair.wire
                assert wire is not None
                wire.settle()
                while device.run_callbacks():
                    pass
                assert len(log) == before + 1
                # It is armed again: one more, out of the blue.
                if kind is not Kind.ERROR:
                    set_up.place(kind, Step(log))
                    while device.run_callbacks():
                        pass
                    assert len(log) == before + 2
                set_up.near.close()
                cq.free()


# --- tasks


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("when", ["before arming", "after arming", "both"])
def test_a_task_loses_nothing(kind: Kind, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A completion is placed right before and right after the pump of tasks arms the queue."""
    second = 1 if when == "both" and kind is not Kind.ERROR else 0
    armed: list[bool] = []
    with scene() as set_up:
        arm = awaiting.Dispatcher.arm

        def arm_and_place(self: Any) -> bool:
            first = not armed
            if first and when != "after arming":
                set_up.place(kind)
            armed.append(arm(self))
            if first and (when == "after arming" or second):
                set_up.place(kind)
            return armed[-1]

        async def body() -> None:
            for _ in range(1 + second):
                await asyncio.wait_for(set_up.cq.next(), 20)

        monkeypatch.setattr(awaiting.Dispatcher, "arm", arm_and_place)
        asyncio.run(body())
        assert armed[0] is (when == "after arming")
