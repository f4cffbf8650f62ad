"""Races on registered memory: who touches bytes that a work request may still touch.

Two kinds are found. A buffer that was posted for sending changes before its completion: what the
peer gets depends on timing. And two WRITEs of different queue pairs overlap while neither is known
to be done: which one stays does.
"""

from __future__ import annotations

import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from softhca.testing.errors import FabricError
from softhca.testing.record import RECEIVE, SIGNALED, Record, What
from softhca.verbs.device import Device
from softhca.verbs.enums import SendFlags, WrOpcode
from softhca.verbs.mr import MR, Sge

if TYPE_CHECKING:
    from softhca.testing.virtual_time import VirtualTime

_SOURCES = frozenset(
    {
        WrOpcode.SEND,
        WrOpcode.SEND_WITH_IMM,
        WrOpcode.SEND_WITH_INV,
        WrOpcode.RDMA_WRITE,
        WrOpcode.RDMA_WRITE_WITH_IMM,
    }
)
_LANDINGS = frozenset({WrOpcode.RDMA_READ})
# What a buffer holds that a READ or receive is still to fill, if that is asked for.
POISON = 0xDB


class RaceError(FabricError):
    """Bytes were touched while a work request might still touch them."""


@dataclass
class _Posted:
    wr: Any
    at_ns: int
    signaled: bool
    sources: list[tuple[memoryview, bytes]] = field(default_factory=list)


def _bytes_of(part: Any) -> memoryview | None:
    mr, start, length = (
        (part, 0, part.length)
        if isinstance(part, MR)
        else (part.mr, part.addr - part.mr.addr, part.length)
        if isinstance(part, Sge) and part.mr is not None
        else (None, 0, 0)
    )
    if mr is None or mr.obj is None:
        return None  # Registered by address: nobody says what it is.
    held: Any = mr.obj
    return memoryview(held).cast("B")[start : start + length]


class MemoryWatch:
    """Watches the memory of all hosts that a fabric has when it is made.

    Attributes:
        races: What was found, in order.
    """

    def __init__(self, fabric: VirtualTime, poison: bool) -> None:
        self.races: list[str] = []
        self._fabric: VirtualTime = weakref.proxy(fabric)
        self._poison = poison
        self._posted: dict[tuple[int, int], deque[_Posted]] = {}
        self._seen = len(fabric.trace)
        self._writes: list[tuple[Record, tuple[int, int], int]] = []
        self._senders: dict[int, tuple[tuple[int, int], int]] = {}
        self._open_wrs: dict[tuple[int, int], deque[tuple[int, bool, int]]] = {}
        self._numbers = 0
        for device in fabric.devices:
            self._watch(device)

    def _watch(self, device: Device) -> None:
        hca: Any = device.adapter
        host = self._fabric.host_number(device)
        post_send, post_recv = hca.post_send, hca.post_recv

        def sending(qpn: int, wrs: Any) -> None:
            self.look()
            post_send(qpn, wrs)
            for wr in wrs if isinstance(wrs, list | tuple) else (wrs,):
                self._note(host, qpn, wr)

        def receiving(qpn: int, wrs: Any) -> None:
            if self._poison:
                for wr in wrs if isinstance(wrs, list | tuple) else (wrs,):
                    self._spoil(wr)
            post_recv(qpn, wrs)

        hca.post_send, hca.post_recv = sending, receiving

    def _spoil(self, wr: Any) -> None:
        for part in wr._kept:
            view = _bytes_of(part)
            if view is not None and not view.readonly:
                view[:] = bytes([POISON]) * len(view)

    def _note(self, host: int, qpn: int, wr: Any) -> None:
        signaled = bool(wr.send_flags & SendFlags.SIGNALED)
        posted = _Posted(wr, self._fabric.now_ns, signaled)
        if wr.opcode in _SOURCES and not wr.send_flags & SendFlags.INLINE:
            views = [view for part in wr._kept if (view := _bytes_of(part)) is not None]
            posted.sources = [(view, bytes(view)) for view in views]
        elif self._poison and wr.opcode in _LANDINGS:
            self._spoil(wr)
        self._posted.setdefault((host, qpn), deque()).append(posted)

    def look(self) -> None:
        """Compares; the fabric calls it before time passes."""
        self._follow()
        for (host, qpn), queue in self._posted.items():
            for posted in queue:
                for view, before in posted.sources:
                    if view == before:
                        continue
                    at = next(i for i, byte in enumerate(before) if view[i] != byte)
                    self.races.append(
                        f"{self._fabric.name_of(host)}, qp {qpn:#x}: byte {at} of the buffer of "
                        f"{posted.wr!r}, posted at {posted.at_ns} ns, changed before its "
                        f"completion, seen at {self._fabric.now_ns} ns"
                    )
                    posted.sources = []
                    break

    def _follow(self) -> None:
        """Learns from the trace what has completed, and who wrote where."""
        fabric = self._fabric
        if fabric.trace.forgotten > self._seen:
            self._seen = fabric.trace.forgotten
        for record in fabric.trace.since(self._seen):
            self._seen += 1
            where = (record.host or 0, record.qpn)
            if record.what is What.POST and not record.b & RECEIVE:
                self._numbers += 1
                queue = self._open_wrs.setdefault(where, deque())
                queue.append((record.a, bool(record.b & SIGNALED), self._numbers))
            elif record.what is What.COMPLETION and not record.b & RECEIVE:
                self._completed(where, record)
            elif record.what is What.SENT:
                numbers = [n for wr, _, n in self._open_wrs.get(where, ()) if wr == record.a]
                if numbers and 0x06 <= record.data[0] <= 0x0B:
                    self._senders[record.packet] = (where, numbers[0])
            elif record.what is What.WRITE and record.packet in self._senders:
                self._wrote(record)

    def _completed(self, where: tuple[int, int], record: Record) -> None:
        posted = self._posted.get(where)
        opened = self._open_wrs.get(where)
        done: set[int] = set()
        while opened:
            wr_id, signaled, number = opened.popleft()
            done.add(number)
            if posted:
                posted.popleft()
            if wr_id == record.a and (signaled or record.b & 255):
                break
        self._writes = [one for one in self._writes if one[1] != where or one[2] not in done]

    def _wrote(self, record: Record) -> None:
        where, number = self._senders[record.packet]
        end = record.a + len(record.data) // 2
        for other, by, _ in self._writes:
            overlaps = other.a < end and record.a < other.a + len(other.data) // 2
            if by != where and other.host == record.host and overlaps:
                names = [f"{self._fabric.name_of(host)}, qp {qpn:#x}" for host, qpn in (by, where)]
                self.races.append(
                    f"{self._fabric.name_of(record.host or 0)}: bytes at "
                    f"{max(other.a, record.a):#x} are written by {names[0]} at {other.at_ns} ns "
                    f"and by {names[1]} at {record.at_ns} ns, and neither knew of the other's end"
                )
        self._writes.append((record, where, number))

    def check(self) -> None:
        """Looks once more.

        Raises:
            RaceError: With all that was found.
        """
        self.look()
        if self.races:
            found, self.races = self.races, []
            raise RaceError("\n".join(found))
