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
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from softhca.testing.errors import FabricError
from softhca.testing.posted import (
    LANDINGS,
    REMOTE,
    REMOTE_WRITES,
    SOURCES,
    Buffer,
    Place,
    Posted,
    SharedReceives,
    region_of,
    requests_of,
)
from softhca.testing.record import DESTROYED, RECEIVE, SHARED, SIGNALED, Record, What
from softhca.testing.regions import Regions, bytes_of
from softhca.testing.rights import operation_of
from softhca.testing.writes import Writes
from softhca.verbs.device import Device
from softhca.verbs.enums import QPState, QPType, SendFlags, WrOpcode
from softhca.verbs.errors import VerbsError
from softhca.verbs.mr import MR, Sge
from softhca.verbs.wr import Recv
from softhca.verbs.wr_memory import BindMw

if TYPE_CHECKING:
    from softhca.testing.virtual_time import VirtualTime

# Operations whose packets change memory of the peer: WRITEs and ATOMIC WRITE.
_WRITES = {*range(0x06, 0x0C), 0x1D}
# Bits of `flags` of `rereg_mr` with which a region gets other keys: its memory or domain changes.
_MOVES = 1 | 2
# What a buffer holds that a READ or receive is still to fill, if that is asked for.
POISON = 0xDB


class RaceError(FabricError):
    """Bytes were touched while a work request might still touch them."""


class MemoryWatch:
    """Watches the memory of all hosts of a fabric.

    Attributes:
        races: What was found, in order.
    """

    def __init__(self, fabric: VirtualTime, poison: bool) -> None:
        self.races: list[str] = []
        self._fabric: VirtualTime = weakref.proxy(fabric)
        self._poison = poison
        self._sends: dict[Place, deque[Posted]] = {}
        self._receives: dict[Place, deque[Posted]] = {}
        self._shared = SharedReceives()
        self._regions: list[Regions] = []
        self._seen = 0
        self._begin = len(fabric.trace)
        self._writes = Writes()
        self._open_wrs: dict[Place, deque[tuple[int, bool, int]]] = {}
        self._numbers = 0
        for device in fabric.devices:
            self.add(device)
        self._follow()
        self.races.clear()  # What happened before is nobody's business.

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
        regions = self._regions[host]
        verbs = ("dereg_mr", "rereg_mr", "bind_mw", "destroy_srq")
        dereg_mr, rereg_mr, bind_mw, destroy_srq = (getattr(hca, verb) for verb in verbs)

        def sending(post: Callable[..., None]) -> Callable[..., None]:
            def called(qpn: int, wrs: Any, *wr_ids: Any) -> None:
                self.look()
                for wr in self._post(post, host, qpn, 0, wrs, *wr_ids):
                    self._note_send(host, qpn, wr)

            return called

        def receiving(post: Callable[..., None], shared: int) -> Callable[..., None]:
            def called(queue: int, wrs: Any, *wr_ids: Any) -> None:
                if self._poison:
                    for wr in requests_of(wrs, *wr_ids):
                        self._spoil(wr)
                for wr in self._post(post, host, queue, RECEIVE | shared, wrs, *wr_ids):
                    posted = Posted(wr, self._fabric.now_ns, self._buffers(host, wr, True))
                    if shared:
                        self._shared.add((host, queue), posted)
                    else:
                        self._receives.setdefault((host, queue), deque()).append(posted)

            return called

        def deregistering(handle: int) -> None:
            with suppress(ReferenceError):  # The fabric is gone, and nobody looks any more.
                self.look()
            dereg_mr(handle)
            with suppress(ReferenceError):
                self._gone(host, handle, regions.key_of(handle), "deregistered")
            regions.gone(handle)

        def moving(handle: int, flags: int, *to: Any) -> Any:
            self.look()
            key = regions.key_of(handle)
            info = rereg_mr(handle, flags, *to)
            if flags & _MOVES:
                self._gone(host, handle, key, "registered anew")
            return info

        def binding(qpn: int, mw: int, bind: tuple[int, int, int, int], *how: int) -> int:
            key: int = bind_mw(qpn, mw, bind, *how)
            self._sends.setdefault((host, qpn), deque()).append(Posted(None, self._fabric.now_ns))
            of, address, length, _ = bind
            regions.lend(key, address, length, of, address)
            return key

        def destroying(srq: int) -> Any:
            callbacks = destroy_srq(srq)
            self._shared.destroyed((host, srq))
            return callbacks

        for verb in ("post_send", "post_send_many"):
            setattr(hca, verb, sending(getattr(hca, verb)))
        for verb in ("post_recv", "post_recv_many"):
            setattr(hca, verb, receiving(getattr(hca, verb), 0))
        for verb in ("post_srq_recv", "post_srq_recv_many"):
            setattr(hca, verb, receiving(getattr(hca, verb), SHARED))
        for verb, watched in zip(verbs, (deregistering, moving, binding, destroying), strict=True):
            setattr(hca, verb, watched)

    def _post(
        self,
        post: Callable[..., None],
        host: int,
        queue: int,
        kind: int,
        wrs: Any,
        *wr_ids: Any,
    ) -> Iterator[Any]:
        """Posts, and gives the work requests that were; raises what the adapter refuses then."""
        before = len(self._fabric.trace)
        listed = requests_of(wrs, *wr_ids)
        try:
            post(queue, wrs, *wr_ids)
        except Exception:  # Those before the one that is refused are posted.
            yield from listed[: self._posted_since(before, host, queue, kind)]
            raise
        yield from listed

    def _posted_since(self, first: int, host: int, queue: int, kind: int) -> int:
        return sum(
            r.what is What.POST and (r.host, r.qpn, r.b & (RECEIVE | SHARED)) == (host, queue, kind)
            for r in self._fabric.trace.since(first)
        )

    def _spoil(self, wr: Any) -> None:
        for part in wr._kept:
            view = bytes_of(part)
            if view is not None and not view.readonly:
                view[:] = bytes([POISON]) * len(view)

    def _buffers(self, host: int, wr: Any, lands: bool) -> list[Buffer]:
        views = [(part, bytes_of(part)) for part in wr._kept]
        place_of = self._regions[host].place_of_part
        return [
            Buffer(view, part, bytearray(view), lands, place_of(part))
            for part, view in views
            if view is not None
        ]

    def _note_send(self, host: int, qpn: int, wr: Any) -> None:
        posted = Posted(wr, self._fabric.now_ns)
        lands = wr.opcode in LANDINGS
        if self._poison and lands:
            self._spoil(wr)
        if lands or (wr.opcode in SOURCES and not wr.send_flags & SendFlags.INLINE):
            posted.buffers = self._buffers(host, wr, lands)
        if wr.opcode in REMOTE:
            self._note_remote(host, qpn, wr, posted)
        elif isinstance(wr, BindMw) and (bind := wr.bind).mr is not None:
            far = wr.remote
            regions = self._regions[host]
            of = regions.key_of(bind.mr.handle)
            regions.lend(far.rkey, far.addr, far.length, of, bind.addr)
        self._sends.setdefault((host, qpn), deque()).append(posted)

    def _note_remote(self, host: int, qpn: int, wr: Any, posted: Posted) -> None:
        hca = self._fabric.devices[host].adapter
        # Not by way of a fault, which counts calls of programs.
        attr, init = type(hca).query_qp(hca, qpn)
        peer = attr.ah_attr.dgid
        posted.flies = init.type == QPType.UC
        size = 8 if "ATOMIC" in WrOpcode(wr.opcode).name else wr.byte_count
        for number, device in enumerate(self._fabric.devices):
            if device.closed or peer not in (device.gid.raw, *device.adapter.gids):
                continue
            posted.remote = number, wr.rkey
            begin = self._regions[number].place_of(wr.rkey, wr.remote_address)
            if begin is not None and wr.opcode in REMOTE_WRITES:
                posted.span = begin, begin + size
            return

    # --- looking

    def _all(self) -> Iterator[tuple[str, int, Posted]]:
        """All that is under way: which queue it was posted to, the host, and what."""
        for queues in (self._sends, self._receives):
            for (host, qpn), queue in queues.items():
                for posted in queue:
                    yield f"qp {qpn:#x}", host, posted
        for (host, srq), posted in self._shared.all():
            yield f"srq {srq}", host, posted
        for (host, qpn), posted in self._writes.flying():
            yield f"qp {qpn:#x}", host, posted

    def _told(self, queue: str, host: int, posted: Posted) -> str:
        name = self._fabric.name_of(host)
        return f"{posted.wr!r}, posted at {posted.at_ns} ns by {name}, {queue}"

    def look(self) -> None:
        """Compares; the fabric calls it before time passes."""
        self._follow()
        for queue, host, posted in self._all():
            changed = next((buffer for buffer in posted.buffers if buffer.has_changed), None)
            if changed is not None:
                self._tell_of_change(self._told(queue, host, posted), changed)
                posted.buffers = []
        for host, regions in enumerate(self._regions):
            for told in regions.unmapped():
                self.races.append(
                    f"{self._fabric.name_of(host)}: {told} is registered, and is no memory any "
                    f"more, seen at {self._fabric.now_ns} ns"
                )

    def _tell_of_change(self, told: str, buffer: Buffer) -> None:
        at = next(i for i, byte in enumerate(buffer.expected) if buffer.view[i] != byte)
        what = "which it is to fill, " if buffer.lands else ""
        self.races.append(
            f"byte {at} of the buffer of {told}, {what}changed before its completion, seen at "
            f"{self._fabric.now_ns} ns"
        )

    def _gone(self, host: int, handle: int, key: int, how: str) -> None:
        """A region went away, or to other memory: nobody may be at work on it."""
        for queue, where, posted in self._all():
            own = where == host and posted.holds(handle)
            if own:
                posted.buffers = []
            if own or posted.remote == (host, key):
                self.races.append(
                    f"{self._fabric.name_of(host)}: the region of key {key:#x} is {how} at "
                    f"{self._fabric.now_ns} ns, while {self._told(queue, where, posted)}, may "
                    f"still touch it"
                )

    def reads(self, part: MR | Sge) -> None:
        """Says that the program reads these bytes now, as far as they are known.

        Args:
            part: A region, or a part of one: `mr[a:b]`.

        Raises:
            RaceError: If a work request, of this host or of a peer, may still write them.
            VerbsError: EINVAL, if the region is closed, or of no host of the fabric.
            TypeError: If `part` is something else.
        """
        region = region_of(part)
        if region is None:
            raise TypeError(f"part must be MR, or Sge of one, not {type(part).__name__}")
        region._demand_open()
        adapters = [device.adapter for device in self._fabric.devices if not device.closed]
        if region._hca not in adapters:
            raise VerbsError(errno.EINVAL, "part", region, "is of no host of this fabric")
        self.look()
        reader = next(
            n for n, device in enumerate(self._fabric.devices) if device.adapter is region._hca
        )
        begin = self._regions[reader].place_of_part(part)
        if begin is None:
            return  # Memory of a kind that is not followed.
        end = begin + part.length
        for queue, host, posted in self._all():
            far = posted.span
            if posted.lands_in(begin, end) or (far and far[0] < end and begin < far[1]):
                raise RaceError(
                    f"{self._fabric.name_of(reader)} reads what "
                    f"{self._told(queue, host, posted)}, may still write"
                )

    # --- following the trace

    def _follow(self) -> None:
        """Learns from the trace what has completed, and who wrote where."""
        fabric = self._fabric
        if fabric.trace.forgotten > self._seen:
            self._seen = fabric.trace.forgotten
            self._writes.lose_sight()
        for record in fabric.trace.since(self._seen):
            if record.what is What.POST and self._seen < self._begin:
                self._posted_before(record)
            self._seen += 1
            where = (record.host or 0, record.qpn)
            if record.what is What.POST and not record.b & RECEIVE:
                self._numbers += 1
                queue = self._open_wrs.setdefault(where, deque())
                queue.append((record.a, bool(record.b & SIGNALED), self._numbers))
            elif record.what is What.COMPLETION and record.b & RECEIVE:
                if receives := self._receives.get(where):
                    receives.popleft()
                else:
                    self._shared.completed(*where, record.a, record.packet)
            elif record.what is What.COMPLETION:
                self._completed(where, record)
            elif record.what is What.SENT:
                self._sent(where, record)
            elif record.what is What.WRITE:
                self._landed(record)
            elif record.what is What.DELIVERED:
                self._shared.delivered(record.packet, record.qpn)
                self._writes.arrived(record.packet, self._numbers)
            elif record.what is What.LOST:
                self._writes.arrived(record.packet, self._numbers)
            elif record.what is What.STATE and record.b in (QPState.RESET, DESTROYED):
                self._shared.abandoned(*where)
                self._writes.forget(where)
                for queues in (self._sends, self._receives, self._open_wrs):
                    queues.pop(where, None)

    def _posted_before(self, record: Record) -> None:
        """Nobody knows its buffers, but that its completion is not that of what came later."""
        where = (record.host or 0, record.qpn)
        if not record.b & RECEIVE:
            self._sends.setdefault(where, deque()).append(Posted(None, record.at_ns))
            return
        posted = Posted(Recv(wr_id=record.a), record.at_ns)
        if record.b & SHARED:
            self._shared.add(where, posted)
        else:
            self._receives.setdefault(where, deque()).append(posted)

    def _landed(self, record: Record) -> None:
        """What an adapter writes is no race by itself: buffers hold it from now on."""
        host = record.host or 0
        place = self._regions[host].place_of(record.number, record.a)
        end = None if place is None else place + len(record.after)
        for _, where, posted in self._all():
            for buffer in posted.buffers:
                if not buffer.lands:
                    continue
                if place is None or end is None:
                    # By a key that the watch does not know, perhaps in here.
                    if where == host:
                        buffer.expected[:] = buffer.view
                elif buffer.begin is not None and buffer.meets(place, end):
                    low = max(place, buffer.begin)
                    high = min(end, buffer.begin + len(buffer.view))
                    fresh = record.after[low - place : high - place]
                    buffer.expected[low - buffer.begin : high - buffer.begin] = fresh
        if place is not None and end is not None and record.packet:
            self._shared.landed(host, record.packet, place, end)
        for before, now, first in self._writes.wrote(record, place):
            names = [
                f"{self._fabric.name_of(at)}, qp {qpn:#x}" for at, qpn in (before.where, now.where)
            ]
            self.races.append(
                f"{self._fabric.name_of(host)}: bytes at {record.a + first:#x} are written by "
                f"{names[0]} at {before.record.at_ns} ns and by {names[1]} at {record.at_ns} ns, "
                f"and neither knew of the other's end"
            )

    def _sent(self, where: Place, record: Record) -> None:
        leaving = self._writes.leaving(where)
        opened = zip(self._open_wrs.get(where, ()), self._sends.get(where, ()), strict=False)
        sender = next(
            ((n, posted.flies) for (wr_id, _, n), posted in opened if wr_id == record.a), None
        )
        if leaving is not None:
            sender = leaving, True
        if sender is not None and operation_of(record.data[0]) in _WRITES:
            self._writes.sent(record.packet, where, *sender)

    def _completed(self, where: Place, record: Record) -> None:
        failed = bool(record.b & 255)
        posted = self._sends.get(where)
        opened = self._open_wrs.get(where)
        done: set[int] = set()
        while opened:
            wr_id, signaled, number = opened.popleft()
            is_last = wr_id == record.a and (signaled or failed)
            one = posted.popleft() if posted else None
            if one is not None and one.flies:
                self._writes.left(number, where, one, self._numbers, is_last and not failed)
            else:
                done.add(number)
            if is_last:
                break
        waiting = [queue[0][2] for queue in self._open_wrs.values() if queue]
        self._writes.done(done, min(waiting, default=self._numbers + 1))

    def check(self) -> None:
        """Looks once more.

        Raises:
            RaceError: With all that was found.
        """
        self.look()
        if self.races:
            found, self.races = self.races, []
            raise RaceError("\n".join(found))
