"""Virtual time: what happens next, and who waits for it."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from softhca import _adapter
from softhca._adapter import FabricStop
from softhca.testing.errors import DeadlockError, FabricError
from softhca.testing.network import Network
from softhca.testing.programs import Programs
from softhca.testing.races import MemoryWatch
from softhca.testing.stuck import describe_hosts
from softhca.testing.trace import Trace
from softhca.verbs.checks import real, unsigned
from softhca.verbs.device import Device

E = TypeVar("E")

_NEVER = (1 << 64) - 1
# More than thirty years, and with room to add some up.
_MOST_SECONDS = 1e9
# How far a poll that finds nothing lets time go at once while packets are on their way.
_POLL_NS = 1_000_000
# Polls in a row that find nothing, when nothing can come any more, until that is an error.
MOST_IDLE_POLLS = 10_000


def _span_ns(seconds: float) -> int:
    return round(real("seconds", seconds, 0, _MOST_SECONDS) * 1e9)


class VirtualTime(Network):
    """The part of a fabric that lets things happen.

    Attributes:
        trace: What happened.
        told: What to call when a rule that only tells strikes, by its number.
    """

    def __init__(self, native: _adapter.Fabric, seed: int, link: dict[str, Any]) -> None:
        super().__init__(native, seed, link)
        self.trace: Trace = Trace(self)
        self._programs = Programs(self)
        self._calls: dict[int, Callable[[], object]] = {}
        self._numbers = itertools.count(1)
        self._idle_polls = 0
        self._running = False
        self._running_thread = 0
        self._watch: MemoryWatch | None = None
        self.told: dict[int, Callable[[], object]] = {}

    @property
    def now_ns(self) -> int:
        """Virtual time, in nanoseconds since the fabric was made."""
        return self._native.now_ns

    def run_for(self, seconds: float) -> None:
        """Lets virtual time pass."""
        end_ns = self.now_ns + _span_ns(seconds)
        program = self._programs.current()
        if program is not None:
            program.wait(lambda: True if self.now_ns >= end_ns else None, end_ns, "time", False)
            return
        while self.now_ns < end_ns:
            self._advance(end_ns, notices=bool(self._busy_crews()))

    sleep = run_for

    def run_until(self, done: Callable[[], object], timeout: float | None = None) -> None:
        """Lets things happen until `done()` is true; it is asked after each thing that happens.

        Args:
            done: Asked.
            timeout: Seconds of virtual time.

        Raises:
            TimeoutError: If it is not true in time.
            DeadlockError: If it can never be.
        """
        if not callable(done):
            raise TypeError(f"done must be callable, not {type(done).__name__}")
        name = getattr(done, "__name__", repr(done))
        self.wait(lambda: True if done() else None, timeout, f"{name} to be true")

    def settle(self) -> None:
        """Lets things happen until no packet is on its way, without waiting for timers."""
        self._advance(self.now_ns, notices=False)
        while self._native.flying:
            next_ns = self._native.next_ns()
            assert next_ns is not None
            self._advance(next_ns, notices=False)
        self._run_callbacks()

    def step(self, until_ns: int = _NEVER) -> bool:
        """Lets one thing happen: a packet arrive, a timer run out, a call be made.

        Returns:
            False if nothing happens any more, or not until then.
        """
        until_ns = unsigned("until_ns", until_ns, 64)
        stop = self._advance(until_ns, notices=False, events=1)
        return stop not in (FabricStop.QUIET, FabricStop.TIME)

    def run_to_record(self, number: int) -> None:
        """Lets things happen until the trace has so many records: the way back to a point of a run.

        Raises:
            DeadlockError: If nothing happens before.
        """
        unsigned("number", number, 63)
        while len(self.trace) < number:
            if not self.step():
                what = f"record {number} of the trace"
                raise DeadlockError(self._deadlock([("the test", what, self.now_ns)]))

    def at(self, when_ns: int, call: Callable[[], object]) -> None:
        """Calls a function at a time; at once in the next step, if that is over."""
        if not callable(call):
            raise TypeError(f"call must be callable, not {type(call).__name__}")
        when_ns = unsigned("when_ns", when_ns, 63)
        number = next(self._numbers)
        self._calls[number] = call
        self._native.call_at(when_ns, number)

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        """Calls a function after some virtual time."""
        self.at(self.now_ns + _span_ns(seconds), call)

    def wait(self, take: Callable[[], E | None], timeout: float | None, what: str) -> E:
        """Lets things happen until `take()` gives something; what blocking waits of devices do.

        Raises:
            TimeoutError: If nothing came within `timeout` seconds of virtual time.
            DeadlockError: If nothing can ever come.
        """
        end_ns = _NEVER if timeout is None else self._deadline(timeout)
        program = self._programs.current()
        if program is not None:
            return program.wait(take, end_ns, what, True)
        while True:
            self._run_callbacks()
            taken = take()
            if taken is not None:
                return taken
            if self.now_ns >= end_ns:
                raise TimeoutError(f"not within {timeout} s of virtual time: {what}")
            if self._advance(end_ns) is FabricStop.QUIET and end_ns == _NEVER:
                taken = take()
                if taken is not None:
                    return taken
                raise DeadlockError(self._deadlock([("the test", what, self.now_ns)]))

    def _deadline(self, timeout: float) -> int:
        real("timeout", timeout, -math.inf, math.inf)
        return min(self.now_ns + max(0, round(min(timeout, _MOST_SECONDS) * 1e9)), _NEVER)

    def run(self, *programs: Callable[[], Any], names: Sequence[str] = ()) -> list[Any]:
        """Runs programs side by side, each as if it had the processor of a host of its own.

        One goes at a time; a wait, and a poll that finds nothing, lets the others go.

        Args:
            programs: Functions without arguments; `functools.partial` makes them so.
            names: What messages call them; by default the names of the functions.

        Returns:
            What each of them returned.

        Raises:
            DeadlockError: If all that are left wait for what can never come.
            TypeError: For an async function: it is for `run_async`.
            BaseException: What the first program that failed raised; the others are ended.
        """
        if isinstance(names, str) or not isinstance(names, Sequence):
            raise TypeError(f"names must be several, in a sequence, not {type(names).__name__}")
        return self._programs.run(programs, names)

    def run_async(self, main: Coroutine[Any, Any, E]) -> E:
        """Runs a coroutine under asyncio, in virtual time: `asyncio.sleep` costs none of ours.

        Raises:
            DeadlockError: If all tasks wait for what can never come.
        """
        if not isinstance(main, Coroutine):
            raise TypeError(f"main must be a coroutine, such as main(), not {type(main).__name__}")
        # Who imports this package for its faults, such as the command line, has no loop.
        from softhca.testing.event_loop import run_asyncio

        return run_asyncio(self, main)

    def run_trio(self, main: Callable[..., Awaitable[E]], *args: Any) -> E:
        """The same for an async function under trio."""
        if not callable(main):
            raise TypeError(f"main must be an async function, not {type(main).__name__}")
        from softhca.testing.event_loop import run_trio

        return run_trio(self, main, *args)

    def _busy_crews(self) -> list[Device]:
        return [d for d in self.devices if not d.closed and d._callback_crews is not None]

    def _run_callbacks(self) -> bool:
        """Runs callbacks of completion queues that are due; True if there were any."""
        ran = False
        for device in self._busy_crews():
            while not device.closed and device.run_callbacks():
                ran = True
        return ran

    def _advance(self, until_ns: int, *, notices: bool = True, events: int = 0) -> FabricStop:
        """One step of the loop: to the next thing that somebody can see."""
        if self._running and self._running_thread != threading.get_ident():
            raise FabricError("time passes in another thread already: give run() both programs")
        if self._running:
            raise FabricError("a predicate or script of a fault must not let time pass")
        self._check_links()
        if self._watch is not None:
            self._watch.look()
        if self._run_callbacks() and notices:
            return FabricStop.NOTICE
        self._running_thread = threading.get_ident()
        self._running = True
        try:
            stop = self._native.run(until_ns, notices, events)
        finally:
            self._running = False
        if stop is FabricStop.CALL:
            self._calls.pop(self._native.called)()
        elif stop is FabricStop.TOLD:
            for rule in self._native.take_told():
                self.told[rule]()
        if stop is not FabricStop.QUIET:
            self._idle_polls = 0
        self._run_callbacks()
        return stop

    def _polled_nothing(self) -> None:
        """A poll found nothing: something may happen meanwhile."""
        if self._running:
            return
        program = self._programs.current()
        if program is not None:
            program.polled_nothing()
            return
        self._let_poll_pass()

    def _let_poll_pass(self) -> None:
        stop = self._advance(self.now_ns + _POLL_NS)
        if stop in (FabricStop.TIME, FabricStop.QUIET) and not self._native.flying:
            next_ns = self._native.next_ns()
            if next_ns is not None:
                self._advance(next_ns)
            elif (idle := self._idle_polls) >= MOST_IDLE_POLLS:
                self._idle_polls = 0
                what = f"a completion, in {idle} polls that found none"
                raise DeadlockError(self._deadlock([("the test", what, self.now_ns)]))
            else:
                self._idle_polls = idle + 1

    def _deadlock(self, waiting: Sequence[tuple[str, str, int]]) -> str:
        lines = [f"nothing more happens after {self.now_ns} ns of virtual time"]
        lines += [f"  {who} waits for {what}, since {since} ns" for who, what, since in waiting]
        return "\n".join(lines + describe_hosts(self.devices))
