"""Races on registered memory: who touches bytes that a work request may still touch.

Found are: a buffer that was posted and changes before its completion; memory that is deregistered
or unmapped while a work request, of its own host or of a peer, may still touch it; WRITEs of
different queue pairs that overlap while neither is known to be done; and reads that come too early,
as far as the program says that it reads.
"""

from __future__ import annotations

import errno
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from softhca.testing.errors import FabricError
from softhca.testing.record import DESTROYED, RECEIVE, SIGNALED, Record, What
from softhca.testing.regions import Regions, bytes_of, is_mapped
from softhca.verbs.device import Device
from softhca.verbs.enums import QPState, SendFlags, WrOpcode
from softhca.verbs.errors import VerbsError
from softhca.verbs.mr import MR, Sge
from softhca.verbs.wr import Recv, SendRequest

if TYPE_CHECKING:
    from softhca.testing.virtual_time import VirtualTime

Place = tuple[int, int]  # Host and queue pair.

_SOURCES = frozenset(
    {
        WrOpcode.SEND,
        WrOpcode.SEND_WITH_IMM,
        WrOpcode.SEND_WITH_INV,
        WrOpcode.RDMA_WRITE,
        WrOpcode.RDMA_WRITE_WITH_IMM,
    }
)
_LANDINGS = frozenset(
    {WrOpcode.RDMA_READ, WrOpcode.ATOMIC_CMP_AND_SWP, WrOpcode.ATOMIC_FETCH_AND_ADD}
)
_REMOTE_WRITES = frozenset(
    {
        WrOpcode.RDMA_WRITE,
        WrOpcode.RDMA_WRITE_WITH_IMM,
        WrOpcode.ATOMIC_CMP_AND_SWP,
        WrOpcode.ATOMIC_FETCH_AND_ADD,
    }
)
# What a buffer holds that a READ or receive is still to fill, if that is asked for.
POISON = 0xDB


class RaceError(FabricError):
    """Bytes were touched while a work request might still touch them."""


def _requests(wrs: Any, wr_ids: Any = None) -> list[Any]:
    """The work requests of a call of `post_send`, or of `post_send_many`.

    Raises:
        VerbsError: EOPNOTSUPP, if they are records, which do not tell their memory from another's.
    """
    if isinstance(wrs, list | tuple):
        return list(wrs)
    if not isinstance(wrs, SendRequest | Recv):
        rule = "is an array of records: who watches memory must see work requests"
        raise VerbsError(errno.EOPNOTSUPP, "wrs", None, rule)
    return [wrs] * (len(wr_ids) if hasattr(wr_ids, "__len__") else 1)


@dataclass
class _Buffer:
    """A buffer of a work request, and what it must hold until that is done."""

    view: memoryview
    part: Any
    expected: bytearray
    lands: bool  # What comes goes there; else what leaves is there.


@dataclass
class _Posted:
    wr: Any
    at_ns: int
    signaled: bool
    buffers: list[_Buffer] = field(default_factory=list)
    # Of what it does at the peer: host, key, first address and end.
    remote: tuple[int, int, int, int] | None = None


def _region_of(part: Any) -> MR | None:
    return part if isinstance(part, MR) else part.mr if isinstance(part, Sge) else None


class MemoryWatch:
    """Watches the memory of all hosts of a fabric.

    Attributes:
        races: What was found, in order.
    """

    def __init__(self, fabric: VirtualTime, poison: bool) -> None:
        self.races: list[str] = []
        self._fabric: VirtualTime = weakref.proxy(fabric)
        self._poison = poison
        self._sends: dict[Place, deque[_Posted]] = {}
        self._receives: dict[Place, deque[_Posted]] = {}
        self._regions: list[Regions] = []
        self._seen = len(fabric.trace)
        self._writes: list[tuple[Record, Place, int]] = []
        self._senders: dict[int, tuple[Place, int]] = {}
        self._open_wrs: dict[Place, deque[tuple[int, bool, int]]] = {}
        self._numbers = 0
        for device in fabric.devices:
            self.add(device)

    def __repr__(self) -> str:
        return f"<MemoryWatch of {len(self._regions)} hosts: {len(self.races)} races>"

    def add(self, device: Device) -> None:
        """Watches one host more: the fabric's next.

        Args:
            device: Its device.
        """
        self._regions.append(Regions(device))
        self._watch(len(self._regions) - 1, device)

    def _watch(self, host: int, device: Device) -> None:
        hca: Any = device.adapter
        post_send, post_recv, dereg_mr = hca.post_send, hca.post_recv, hca.dereg_mr
        post_send_many, post_recv_many = hca.post_send_many, hca.post_recv_many

        def sending(qpn: int, wrs: Any, *wr_ids: Any) -> None:
            self.look()
            before = len(self._fabric.trace)
            listed = _requests(wrs, *wr_ids)
            try:
                (post_send_many if wr_ids else post_send)(qpn, wrs, *wr_ids)
            except Exception:  # Those before the one that is refused are posted.
                listed = listed[: self._posted_since(before, host, qpn)]
                raise
            finally:
                for wr in listed:
                    self._note_send(host, qpn, wr)

        def receiving(qpn: int, wrs: Any, *wr_ids: Any) -> None:
            listed = _requests(wrs, *wr_ids)
            if self._poison:
                for wr in listed:
                    self._spoil(wr)
            (post_recv_many if wr_ids else post_recv)(qpn, wrs, *wr_ids)
            for wr in listed:
                posted = _Posted(wr, self._fabric.now_ns, True, self._buffers(wr, True))
                self._receives.setdefault((host, qpn), deque()).append(posted)

        def deregistering(handle: int) -> None:
            with suppress(ReferenceError):  # The fabric is gone, and nobody looks any more.
                self.look()
                self._gone(host, handle)
            dereg_mr(handle)

        hca.post_send, hca.post_recv, hca.dereg_mr = sending, receiving, deregistering
        hca.post_send_many, hca.post_recv_many = sending, receiving

    def _posted_since(self, first: int, host: int, qpn: int) -> int:
        return sum(
            r.what is What.POST and (r.host, r.qpn) == (host, qpn) and not r.b & RECEIVE
            for r in self._fabric.trace.since(first)
        )

    def _spoil(self, wr: Any) -> None:
        for part in wr._kept:
            view = bytes_of(part)
            if view is not None and not view.readonly:
                view[:] = bytes([POISON]) * len(view)

    def _buffers(self, wr: Any, lands: bool) -> list[_Buffer]:
        views = [(part, bytes_of(part)) for part in wr._kept]
        return [
            _Buffer(view, part, bytearray(view), lands) for part, view in views if view is not None
        ]

    def _note_send(self, host: int, qpn: int, wr: Any) -> None:
        signaled = bool(wr.send_flags & SendFlags.SIGNALED)
        posted = _Posted(wr, self._fabric.now_ns, signaled)
        if self._poison and wr.opcode in _LANDINGS:
            self._spoil(wr)
        lands = wr.opcode in _LANDINGS
        if lands or (wr.opcode in _SOURCES and not wr.send_flags & SendFlags.INLINE):
            posted.buffers = self._buffers(wr, lands)
        if wr.rkey:
            size = 8 if "ATOMIC" in WrOpcode(wr.opcode).name else wr.byte_count
            posted.remote = self._remote(host, qpn, wr, size)
        self._sends.setdefault((host, qpn), deque()).append(posted)

    def _remote(self, host: int, qpn: int, wr: Any, size: int) -> tuple[int, int, int, int] | None:
        peer = self._fabric.devices[host].adapter.query_qp(qpn)[0].ah_attr.dgid
        for number, device in enumerate(self._fabric.devices):
            if device.gid.raw == peer:
                return number, wr.rkey, wr.remote_address, wr.remote_address + size
        return None

    # --- looking

    def _all(self) -> Iterator[tuple[Place, _Posted]]:
        for queues in (self._sends, self._receives):
            for place, queue in queues.items():
                for posted in queue:
                    yield place, posted

    def _told(self, place: Place, posted: _Posted) -> str:
        name = self._fabric.name_of(place[0])
        return f"{posted.wr!r}, posted at {posted.at_ns} ns by {name}, qp {place[1]:#x}"

    def look(self) -> None:
        """Compares; the fabric calls it before time passes."""
        self._follow()
        for place, posted in self._all():
            for buffer in posted.buffers:
                if not _still(buffer) and self._has_changed(place, posted, buffer):
                    posted.buffers = []
                    break
        for host, regions in enumerate(self._regions):
            for told in regions.unmapped():
                self.races.append(
                    f"{self._fabric.name_of(host)}: {told} is registered, and is no memory any "
                    f"more, seen at {self._fabric.now_ns} ns"
                )

    def _has_changed(self, place: Place, posted: _Posted, buffer: _Buffer) -> bool:
        at = next(i for i, byte in enumerate(buffer.expected) if buffer.view[i] != byte)
        what = "which it is to fill, " if buffer.lands else ""
        self.races.append(
            f"byte {at} of the buffer of {self._told(place, posted)}, {what}changed before its "
            f"completion, seen at {self._fabric.now_ns} ns"
        )
        return True

    def _gone(self, host: int, handle: int) -> None:
        """A region is deregistered: nobody may be at work on it."""
        key = handle
        for place, posted in self._all():
            own = place[0] == host and any(
                region is not None and region.handle == handle
                for region in map(_region_of, posted.wr._kept)
            )
            if own or (posted.remote and posted.remote[:2] == (host, key)):
                self.races.append(
                    f"{self._fabric.name_of(host)}: the region of key {key:#x} is deregistered at "
                    f"{self._fabric.now_ns} ns, while {self._told(place, posted)}, may still "
                    f"touch it"
                )
        self._regions[host].gone(handle)

    def reads(self, part: MR | Sge) -> None:
        """Says that the program reads these bytes now, as far as they are known.

        Args:
            part: A region, or a part of one: `mr[a:b]`.

        Raises:
            RaceError: If a work request, of this host or of a peer, may still write them.
            VerbsError: EINVAL, if the region is closed, or of no host of the fabric.
            TypeError: If `part` is something else.
        """
        region = _region_of(part)
        if region is None:
            raise TypeError(f"part must be MR, or Sge of one, not {type(part).__name__}")
        region._demand_open()
        adapters = [device.adapter for device in self._fabric.devices if not device.closed]
        if region._hca not in adapters:
            raise VerbsError(errno.EINVAL, "part", region, "is of no host of this fabric")
        self.look()
        host = next(
            n for n, device in enumerate(self._fabric.devices) if device.adapter is region._hca
        )
        first = part.addr
        end = first + part.length
        for place, posted in self._all():
            if place[0] == host:
                for buffer in posted.buffers:
                    other = _region_of(buffer.part)
                    if buffer.lands and other is region and _overlap(buffer.part, first, end):
                        raise RaceError(
                            f"{self._fabric.name_of(host)} reads what "
                            f"{self._told(place, posted)}, may still write"
                        )
            remote = posted.remote
            if remote is None or posted.wr.opcode not in _REMOTE_WRITES:
                continue
            if remote[:2] == (host, region.rkey) and remote[2] < end and first < remote[3]:
                raise RaceError(
                    f"{self._fabric.name_of(host)} reads what {self._told(place, posted)}, may "
                    f"still write"
                )

    # --- following the trace

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
            elif record.what is What.COMPLETION and record.b & RECEIVE:
                if receives := self._receives.get(where):
                    receives.popleft()
            elif record.what is What.COMPLETION:
                self._completed(where, record)
            elif record.what is What.SENT:
                numbers = [n for wr, _, n in self._open_wrs.get(where, ()) if wr == record.a]
                if numbers and 0x06 <= record.data[0] <= 0x0B:
                    self._senders[record.packet] = (where, numbers[0])
            elif record.what is What.WRITE:
                self._landed(record)
                if record.packet in self._senders:
                    self._wrote(record)
            elif record.what is What.STATE and record.b in (QPState.RESET, DESTROYED):
                for queues in (self._sends, self._receives, self._open_wrs):
                    queues.pop(where, None)

    def _landed(self, record: Record) -> None:
        """What an adapter writes is no race by itself: buffers hold it from now on."""
        host = record.host or 0
        place = self._regions[host].place_of(record.number, record.a)
        for where, posted in self._all():
            if where[0] != host:
                continue
            for buffer in posted.buffers:
                if not buffer.lands:
                    continue
                if place is None:  # By a key that the watch does not know, perhaps in here.
                    buffer.expected[:] = buffer.view
                    continue
                begin = self._regions[host].place_of_part(buffer.part)
                if begin is None:
                    continue
                after = record.after
                low, high = max(place, begin), min(place + len(after), begin + len(buffer.view))
                if low < high:
                    buffer.expected[low - begin : high - begin] = after[low - place : high - place]

    def _completed(self, where: Place, record: Record) -> None:
        posted = self._sends.get(where)
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


def _overlap(part: Any, first: int, end: int) -> bool:
    return bool(part.addr < end and first < part.addr + part.length)


def _still(buffer: _Buffer) -> bool:
    return not is_mapped(buffer.part) or buffer.view == buffer.expected
