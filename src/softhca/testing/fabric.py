"""Hosts, links and switches in one process and in virtual time: `softhca.testing.Fabric`."""

from __future__ import annotations

import errno
import itertools
import math
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, TypeVar

from softhca import _adapter
from softhca._adapter import FabricStop
from softhca.testing.errors import DeadlockError, FabricError
from softhca.testing.event_loop import run_asyncio, run_trio
from softhca.testing.fault_script import FabricFaults
from softhca.testing.invariants import InvariantError, Invariants
from softhca.testing.links import Link, Switch, shape_of
from softhca.testing.programs import Programs
from softhca.testing.races import MemoryWatch
from softhca.testing.simulation import simulated_hca
from softhca.testing.stuck import describe_hosts
from softhca.testing.trace import Trace
from softhca.verbs.checks import unsigned
from softhca.verbs.device import Device
from softhca.verbs.errors import VerbsError
from softhca.verbs.gid import GID, GIDLike

E = TypeVar("E")

_NEVER = (1 << 64) - 1
_TRACE_BYTES = 64 << 20
# How far a poll that finds nothing lets time go at once while packets are on their way.
_POLL_NS = 1_000_000
# Polls in a row that find nothing, when nothing can come any more, until that is an error.
MOST_IDLE_POLLS = 10_000
# The same on every machine, unlike the number of its processors.
_VECTORS = 4
# Where buffers of the first host begin for its peers; the next host's begin so much later.
_ADDRESSES_PER_HOST = 1 << 40
_PAGE = 4096


class _World:
    """A fabric as one of its devices knows it."""

    def __init__(self, fabric: Fabric, number: int) -> None:
        self._fabric = fabric
        self.num_comp_vectors = _VECTORS
        self._next_address = (number + 1) * _ADDRESSES_PER_HOST

    def wait(self, take: Callable[[], E | None], timeout: float | None, what: str) -> E:
        return self._fabric.wait(take, timeout, what)

    def address_for(self, address: int, length: int) -> int:
        # What alignment within a word decides must be as it is in memory.
        first = self._next_address + address % 8
        self._next_address += (length + 8 + 2 * _PAGE - 1) // _PAGE * _PAGE
        return first


class Fabric:
    """Many adapters in one process, the network between them, and one virtual clock.

    The devices are those of `softhca`, and the same programs run on them: waits, and polls that
    find nothing, let virtual time pass. A run is a function of the seed and the program.

    Without links of its own, every host reaches every other one by a link of the default shape.

    Args:
        seed: Of everything that is drawn.
        gbps: Default bandwidth of links, in 10^9 bits a second; None for no limit.
        latency_ns: Default latency of links.
        mtu: Default MTU of links and ports, in bytes.
        trace: Record what happens: True, False, or the bytes to keep at most.
        jitter_ns: Packets of different flows may overtake each other within this time.

    Attributes:
        seed: As given.
        faults: Faults on request; see `softhca.testing.FabricFaults`.
        devices: The devices of the hosts, in order.
        trace: What happened.
    """

    def __init__(
        self,
        seed: int = 1,
        *,
        gbps: float | None = 100.0,
        latency_ns: int = 1000,
        mtu: int = 4096,
        trace: bool | int = True,
        jitter_ns: int = 0,
    ) -> None:
        self.seed = unsigned("seed", seed, 63)
        self._mtu = mtu
        self._defaults: dict[str, Any] = {"gbps": gbps, "latency_ns": latency_ns, "mtu": mtu}
        kept = (_TRACE_BYTES if trace else 0) if isinstance(trace, bool) else trace
        self._native = _adapter.Fabric(
            seed=self.seed,
            link=shape_of(**self._defaults),
            trace_bytes=unsigned("trace", kept, 48),
            jitter_ns=unsigned("jitter_ns", jitter_ns, 48),
        )
        self.devices: list[Device] = []
        self.switches: list[Switch] = []
        self.links: list[Link] = []
        self.faults = FabricFaults(self)
        self.trace = Trace(self)
        self._programs = Programs(self)
        self._calls: dict[int, Callable[[], object]] = {}
        self._numbers = itertools.count(1)
        self._idle_polls = 0
        self._running = False
        self._watch: MemoryWatch | None = None
        self._kept: list[Any] = []
        self._checked_links = 0
        self._checked_records = 0
        self._invariants = Invariants()
        self.told: dict[int, Callable[[], object]] = {}

    # --- topology

    def host(
        self, name: str | None = None, *, gid: GIDLike | None = None, **options: Any
    ) -> Device:
        """Adds a host with an adapter, and returns the device.

        Args:
            name: What traces and messages call it; by default h1, h2 and so on.
            gid: Its address; by default 10.0.0.1, 10.0.0.2 and so on.
            options: As for `open_simulated`: mtu, icrc, limits, retry_early, windows.

        Raises:
            VerbsError: EADDRINUSE, if another host has the address.
        """
        number = len(self.devices)
        address = (
            gid
            if gid is not None
            else f"10.{(number + 1) >> 16}.{(number + 1) >> 8 & 255}.{(number + 1) & 255}"
        )
        options.setdefault("mtu", self._mtu)
        seed = (self.seed * 1_000_003 + number) % (1 << 63)
        if any(other.gid == GID(address) for other in self.devices):
            raise VerbsError(errno.EADDRINUSE, "gid", address, "is another host's")
        hca = simulated_hca(address, seed=seed, **options)
        self._native.add_host(hca)
        device = Device(hca, name=name or f"h{number + 1}", seed=seed, world=_World(self, number))
        self.devices.append(device)
        fabric = weakref.ref(self)  # The adapter must not keep what keeps it.

        def idle() -> None:
            here = fabric()
            if here is not None:
                here._polled_nothing()

        device.adapter.set_idle(idle)
        return device

    def hosts(self, count: int, **options: Any) -> list[Device]:
        """Adds several hosts and returns their devices."""
        return [self.host(**options) for _ in range(count)]

    def switch(self, name: str | None = None) -> Switch:
        """Adds a switch; `link` joins it to hosts and other switches."""
        made = Switch(self._native.add_switch(), name or f"s{len(self.switches) + 1}")
        self.switches.append(made)
        return made

    def link(self, a: Device | Switch, b: Device | Switch, **shape: Any) -> Link:
        """Joins two hosts or switches.

        With the first link, hosts reach each other only where links lead. Packets take the shortest
        way; of several that are as short, a flow keeps to one.

        Args:
            a: One end.
            b: The other.
            shape: gbps, latency_ns, mtu; queue_bytes, the most that waits for the link at a switch;
                mark_bytes, (from, to): congestion marks begin at so much waiting, and all packets
                are marked beyond the second.

        Raises:
            VerbsError: EINVAL, for an end of another fabric, or the same twice.
        """
        if a is b:
            raise VerbsError(errno.EINVAL, "b", b, "is the same as a")
        values = shape_of(**{**self._defaults, **shape})
        number = self._native.connect(self._node("a", a), self._node("b", b), values)
        made = Link(self._native, number, a, b, values)
        self.links.append(made)
        return made

    def star(self, count: int, **shape: Any) -> list[Device]:
        """Adds hosts around a new switch, and returns their devices."""
        middle = self.switch()
        devices = self.hosts(count)
        for device in devices:
            self.link(device, middle, **shape)
        return devices

    def _node(self, argument: str, end: Device | Switch) -> int:
        if isinstance(end, Switch):
            if end in self.switches:
                return end.node
        elif end in self.devices:
            return self._native.node_of_host(self.devices.index(end))
        raise VerbsError(errno.EINVAL, argument, end, "must be a host or switch of this fabric")

    def host_number(self, device: Device) -> int:
        """Number of a host, from 0.

        Raises:
            VerbsError: EINVAL, if it is of another fabric.
        """
        if device not in self.devices:
            raise VerbsError(errno.EINVAL, "device", device, "is no host of this fabric")
        return self.devices.index(device)

    def name_of(self, host: int) -> str:
        """Name of a host by its number, from 0."""
        return self.devices[host].name

    def _check_links(self) -> None:
        """Refuses a topology in which somebody can reach nobody, before packets are lost to it."""
        known = len(self.links) + len(self.devices) + len(self.switches)
        if known == self._checked_links:
            return
        self._checked_links = known
        if not self.links:
            if self.switches:
                raise FabricError(f"switch {self.switches[0].name} is linked to nothing")
            return
        joined: set[int] = set()
        waiting: list[Device | Switch] = [self.links[0].a]
        ends = [(id(link.a), id(link.b), link) for link in self.links]
        while waiting:
            one = waiting.pop()
            if id(one) in joined:
                continue
            joined.add(id(one))
            for a, b, link in ends:
                if id(one) in (a, b):
                    waiting.append(link.b if a == id(one) else link.a)
        everybody: list[Device | Switch] = [*self.devices, *self.switches]
        alone = [end.name for end in everybody if id(end) not in joined]
        if alone:
            raise FabricError(
                f"no way leads from {', '.join(alone)} to {self.links[0].a.name}: link them"
            )

    # --- time

    @property
    def now_ns(self) -> int:
        """Virtual time, in nanoseconds since the fabric was made."""
        return self._native.now_ns

    def run_for(self, seconds: float) -> None:
        """Lets virtual time pass."""
        if not seconds >= 0:
            raise VerbsError(errno.EINVAL, "seconds", seconds, "must be 0 or more")
        end_ns = self.now_ns + round(seconds * 1e9)
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
        stop = self._advance(until_ns, notices=False, events=1)
        return stop not in (FabricStop.QUIET, FabricStop.TIME)

    def run_to_record(self, number: int) -> None:
        """Lets things happen until the trace has so many records: the way back to a point of a run.

        Raises:
            DeadlockError: If nothing happens before.
        """
        while len(self.trace) < number:
            if not self.step():
                what = f"record {number} of the trace"
                raise DeadlockError(self._deadlock([("the test", what, self.now_ns)]))

    def at(self, when_ns: int, call: Callable[[], object]) -> None:
        """Calls a function at a time; at once in the next step, if that is over."""
        number = next(self._numbers)
        self._calls[number] = call
        self._native.call_at(unsigned("when_ns", when_ns, 63), number)

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        """Calls a function after some virtual time."""
        self.at(self.now_ns + round(seconds * 1e9), call)

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
        if math.isnan(timeout):
            raise VerbsError(errno.EINVAL, "timeout", timeout, "must be a number of seconds")
        return min(self.now_ns + max(0, round(min(timeout, 1e9) * 1e9)), _NEVER)

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
            BaseException: What the first program that failed raised; the others are ended.
        """
        return self._programs.run(programs, names)

    def run_async(self, main: Coroutine[Any, Any, E]) -> E:
        """Runs a coroutine under asyncio, in virtual time: `asyncio.sleep` costs none of ours.

        Raises:
            DeadlockError: If all tasks wait for what can never come.
        """
        return run_asyncio(self, main)

    def run_trio(self, main: Callable[..., Awaitable[E]], *args: Any) -> E:
        """The same for an async function under trio."""
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
        if self._running:
            raise FabricError("a predicate or script of a fault must not let time pass")
        self._check_links()
        if self._watch is not None:
            self._watch.look()
        if self._run_callbacks() and notices:
            return FabricStop.NOTICE
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

    def watch_memory(self, *, poison: bool = False) -> MemoryWatch:
        """Looks for races on registered memory from now on, on the hosts that there are.

        `check`, and leaving the `with` block, raise what was found. It costs a comparison of all
        buffers under way at each step.

        Args:
            poison: Fill buffers that a READ or a receive is to fill when it is posted, so that a
                program which reads too early does not see what it hoped for.
        """
        self._watch = MemoryWatch(self, poison)
        return self._watch

    # --- what faults need

    def add_fault(self, rule: _adapter.FaultRule) -> int:
        """Adds a native rule; `faults` makes them of words."""
        return self._native.add_fault(rule)

    def remove_fault(self, number: int) -> None:
        """Takes a rule away."""
        self._native.remove_fault(number)

    def tally(self, number: int) -> tuple[int, int]:
        """How often a rule matched, and struck."""
        return self._native.tally(number)

    def strikes(self, number: int) -> list[int]:
        """Numbers of the matches that a rule struck."""
        return self._native.strikes(number)

    def check(self) -> None:
        """Checks what happened since the last check against what the transport must hold.

        Raises:
            InvariantError: If it broke a rule that no fault excuses.
            RaceError: If `watch_memory` found races.
        """
        if self._watch is not None:
            self._watch.check()
        if self.faults.forges or self.trace.forgotten > self._checked_records:
            return  # What is gone cannot be judged, nor what follows from it.
        self._invariants.check(self.trace.since(self._checked_records))
        self._checked_records = len(self.trace)
        if wrong := self._invariants.violations:
            self._invariants.violations = []
            raise InvariantError("\n".join(wrong[:10]))

    @property
    def counters(self) -> dict[str, int]:
        """Packets that hosts sent, that were delivered and lost, and events of the loop."""
        return self._native.counters()

    # --- its end

    def keep(self, kept: E) -> E:
        """Keeps an object until the fabric is closed, which closes what was made on its devices."""
        self._kept.append(kept)
        return kept

    def close(self) -> None:
        """Closes all devices and what was made from them."""
        for device in self.devices:
            if not device.closed:
                device.adapter.set_idle(None)
            device._close_with_children()
        self._kept.clear()

    def __enter__(self) -> Fabric:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes; of a test that passed, what happened is checked first."""
        try:
            if error is None:
                self.check()
        finally:
            self.close()

    def __repr__(self) -> str:
        return f"<Fabric seed={self.seed}: {len(self.devices)} hosts at {self.now_ns} ns>"
