"""Hosts, links and switches in one process and in virtual time: `softhca.testing.Fabric`."""

from __future__ import annotations

import errno
from types import TracebackType
from typing import Any, TypeVar

from softhca import _adapter
from softhca.testing.fault_script import FabricFaults
from softhca.testing.invariants import InvariantError, Invariants
from softhca.testing.links import shape_of
from softhca.testing.races import MemoryWatch
from softhca.testing.virtual_time import VirtualTime
from softhca.verbs.checks import unsigned
from softhca.verbs.device import Device
from softhca.verbs.errors import VerbsError
from softhca.verbs.gid import GIDLike

E = TypeVar("E")

_TRACE_BYTES = 64 << 20


class Fabric(VirtualTime):
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
        ack_delay_ns: Hosts are busy at times, for this long at most, and then acknowledge all that
            has come meanwhile together.

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
        ack_delay_ns: int = 0,
    ) -> None:
        kept = (_TRACE_BYTES if trace else 0) if isinstance(trace, bool) else trace
        link: dict[str, Any] = {"gbps": gbps, "latency_ns": latency_ns, "mtu": mtu}
        native = _adapter.Fabric(
            seed=unsigned("seed", seed, 63),
            link=shape_of(**link),
            trace_bytes=unsigned("trace", kept, 48),
            jitter_ns=unsigned("jitter_ns", jitter_ns, 48),
            ack_delay_ns=unsigned("ack_delay_ns", ack_delay_ns, 48),
        )
        super().__init__(native, seed, link)
        self.faults: FabricFaults = FabricFaults(self)
        self._kept: list[Any] = []
        self._closed = False
        self._keeps_trace = kept > 0
        self._checked_records = 0
        self._invariants = Invariants()

    def watch_memory(self, *, poison: bool = False) -> MemoryWatch:
        """Looks for races on registered memory from now on, on all hosts.

        `check`, and leaving the `with` block, raise what was found. It costs a comparison of all
        buffers under way at each step.

        Args:
            poison: Fill buffers that a READ or a receive is to fill when it is posted, so that a
                program which reads too early does not see what it hoped for.

        Raises:
            VerbsError: EINVAL, if the fabric keeps no trace, which tells what has completed.
        """
        if not self._keeps_trace:
            raise VerbsError(errno.EINVAL, "trace", False, "must be kept to watch memory")
        self._watch = MemoryWatch(self, poison)
        return self._watch

    def host(
        self, name: str | None = None, *, gid: GIDLike | None = None, **options: Any
    ) -> Device:
        if self._closed:
            # Nobody would close its device any more.
            raise VerbsError(errno.EINVAL, "fabric", None, "is closed")
        device = super().host(name, gid=gid, **options)
        if self._watch is not None:
            self._watch.add(device)
        return device

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
        forges = self.faults.forges or (self.faults.damages and self._believes_damage)
        if forges or self.trace.forgotten > self._checked_records:
            return  # What is gone cannot be judged, nor what follows from it.
        self._invariants.check(self.trace.since(self._checked_records))
        self._checked_records = len(self.trace)
        if len(self.trace) > 0:
            self._invariants.balance(self.devices)
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
        """Closes all devices and what was made from them; there are no more hosts from then on."""
        self._closed = True
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
