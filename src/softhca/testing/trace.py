"""What happened in a fabric, record by record; kept, shown and asked."""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softhca.testing.ladder import html_ladder, svg_ladder, text_ladder
from softhca.testing.record import Record, What
from softhca.testing.trace_file import load_records, pcapng_of, save_records
from softhca.verbs.checks import instance, unsigned
from softhca.verbs.errors import VerbsError
from softhca.verbs.lifetime import VerbsObject
from softhca.verbs.mr import MR

if TYPE_CHECKING:
    from softhca.testing.virtual_time import VirtualTime
    from softhca.verbs.device import Device

_BATCH = 4096


class AnyTrace(ABC):
    """Records, of a run or of a file."""

    @property
    @abstractmethod
    def hosts(self) -> list[str]:
        """Names of the hosts, in order."""

    @abstractmethod
    def __iter__(self) -> Iterator[Record]:
        """All records that are kept, in the order in which things happened."""

    def writes_to(self, host: int, address: int) -> list[tuple[Record, Record | None]]:
        """Who wrote a byte of memory: each write, with the packet that brought it.

        Args:
            host: Number of the host.
            address: What its keys call the byte.

        Returns:
            Pairs of the write and the packet as it was sent, in order; None for a write that no
            packet brought, or one that is not kept any more.

        Raises:
            VerbsError: EINVAL, for the number of no host, or an address beyond 64 bits.
        """
        host = unsigned("host", host, 63, most=len(self.hosts) - 1)
        address = unsigned("address", address, 64)
        return self._writes(host, lambda key, first, end: first <= address < end)

    def _writes(
        self, host: int, has: Callable[[int, int, int], bool]
    ) -> list[tuple[Record, Record | None]]:
        """Writes to a host of which `has(key, first address, end)` is true.

        It is asked about the key of the write, and if that is a window's, about the region under
        it as well.
        """
        sent: dict[int, Record] = {}
        windows: dict[int, tuple[int, int]] = {}  # By key: that of the region, and how far off.
        found = []
        for record in self:
            if record.what is What.SENT:
                sent[record.packet] = record
            elif record.host != host:
                continue
            elif record.what is What.KEY:
                under = int.from_bytes(record.data[13:17], "big")
                windows.pop(record.number, None)
                if under:
                    address = int.from_bytes(record.data[17:25], "big")
                    windows[record.number] = under, address - record.a
            elif record.what is What.WRITE:
                end = record.a + len(record.after)
                key, off = windows.get(record.number, (0, 0))
                if has(record.number, record.a, end) or (
                    key and has(key, record.a + off, end + off)
                ):
                    found.append((record, sent.get(record.packet)))
        return found

    def text(self, limit: int | None = None) -> str:
        """A ladder of packets between hosts, as text.

        Args:
            limit: Lines at most, besides the names of the hosts and a word about the rest.
        """
        if limit is not None:
            limit = unsigned("limit", limit, 63)
        return text_ladder(self.hosts, self, limit)

    def svg(self, limit: int = 2000) -> str:
        """The same as a drawing."""
        return svg_ladder(self.hosts, self, unsigned("limit", limit, 63))

    def html(self, limit: int = 2000) -> str:
        """The same as a page that needs nothing else."""
        return html_ladder(self.hosts, self, unsigned("limit", limit, 63))

    def pcapng(self) -> bytes:
        """The packets that were sent, as a capture; comments tell what became of them."""
        return pcapng_of(self.hosts, self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a file, whose name says which: .html, .svg, .txt, .pcapng, or .trace for all.

        `softhca trace` shows what a .trace file holds.

        Raises:
            VerbsError: EINVAL, for another name.
        """
        to = Path(path)
        match to.suffix:
            case ".html":
                to.write_text(self.html(), encoding="utf-8")
            case ".svg":
                to.write_text(self.svg(), encoding="utf-8")
            case ".txt":
                to.write_text(self.text(), encoding="utf-8")
            case ".pcapng":
                to.write_bytes(self.pcapng())
            case ".trace":
                save_records(to, self.hosts, self)
            case _:
                rule = "must end in .html, .svg, .txt, .pcapng or .trace"
                raise VerbsError(errno.EINVAL, "path", str(to), rule)


class SavedTrace(AnyTrace):
    """The trace that a file holds."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Reads a .trace file.

        Raises:
            ValueError: If it is none.
            OSError: If it cannot be read.
        """
        self._hosts, self._records = load_records(Path(path))

    @property
    def hosts(self) -> list[str]:
        """Names of the hosts, in order."""
        return self._hosts

    def __len__(self) -> int:
        """Records in the file."""
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        """All of them."""
        return iter(self._records)


class Trace(AnyTrace):
    """The records of a fabric, the oldest that are kept first."""

    def __init__(self, fabric: VirtualTime) -> None:
        self._fabric = fabric  # Whoever has the trace may have nothing else left of the run.

    def __repr__(self) -> str:
        return f"<Trace of {self._fabric!r}: {len(self)} records>"

    @property
    def hosts(self) -> list[str]:
        """Names of the hosts, in order."""
        return [device.name for device in self._fabric.devices]

    def __len__(self) -> int:
        """Records that there ever were."""
        return int(self._fabric._native.record_count)

    @property
    def forgotten(self) -> int:
        """Of those, how many are not kept any more."""
        return int(self._fabric._native.forgotten)

    @property
    def digest(self) -> str:
        """The same for two runs in which the same happened, forgotten records included."""
        return f"{self._fabric._native.digest:016x}"

    def note(self, text: str) -> None:
        """Writes a remark.

        Args:
            text: The remark.
        """
        self._fabric._native.note(0, instance("text", text, str))

    def who_wrote(self, mr: MR, offset: int) -> list[tuple[Record, Record | None]]:
        """Who wrote a byte of a region; see `writes_to`.

        By whatever key: its own, a window's, or that of another region of the same memory, as long
        as that is open.

        Args:
            mr: A region of one of the hosts.
            offset: Of the byte in the region.

        Raises:
            VerbsError: EINVAL, if the region is of no host of this fabric, or closed; or if it has
                no such byte.
        """
        adapters = [device._hca for device in self._fabric.devices]
        if instance("mr", mr, MR)._hca not in adapters:
            raise VerbsError(errno.EINVAL, "mr", mr, "is of no host of this fabric")
        host = adapters.index(mr._hca)
        offset = unsigned("offset", offset, 63, most=mr.length - 1)
        names = dict(_names_of(self._fabric.devices[host], mr, offset))
        return self._writes(host, lambda key, first, end: first <= names.get(key >> 8, -1) < end)

    def __iter__(self) -> Iterator[Record]:
        """All records that are kept."""
        yield from self.since(0)

    def since(self, first: int) -> Iterator[Record]:
        """Records from number `first` on, counted since the beginning."""
        native: Any = self._fabric._native
        at = max(first, self.forgotten)
        while batch := native.records(at, _BATCH):
            at += len(batch)
            for when, kind, host, *rest in batch:
                yield Record(when, What(kind), host - 1 if host else None, *rest)


def _names_of(device: Device, mr: MR, offset: int) -> Iterator[tuple[int, int]]:
    """What a byte of a region is called: index of the key, and address, of each region it is in."""
    yield mr.lkey >> 8, mr.addr + offset
    if mr._address is None:
        return
    place = mr._address + offset
    waiting: list[VerbsObject] = [device]
    while waiting:
        one = waiting.pop()
        waiting += one._live_children()
        if isinstance(one, MR) and one is not mr and one._address is not None:
            inside = place - one._address
            if 0 <= inside < one.length:
                yield one.lkey >> 8, one.addr + inside
