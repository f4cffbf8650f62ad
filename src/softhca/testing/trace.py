"""What happened in a fabric, record by record."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from softhca import _adapter

if TYPE_CHECKING:
    from softhca.testing.fabric import Fabric

_BATCH = 4096


class What(IntEnum):
    """Kinds of records."""

    SENT = 0
    DELIVERED = 1
    LOST = 2
    FAULT = 3
    POST = 4
    COMPLETION = 5
    STATE = 6
    WRITE = 7
    EVENT = 8
    NOTE = 9


@dataclass(frozen=True, slots=True)
class Record:
    """One thing that happened.

    Attributes:
        at_ns: When, in virtual time.
        what: Kind of record.
        host: Number of the host, from 0; None if it was on the way.
        qpn: Queue pair there; 0 for none.
        packet: Number of the packet, the same when it is sent, struck by a fault and delivered.
        a: Depends on the kind: wr_id, address.
        b: Depends on the kind: opcode, status, state.
        number: Depends on the kind: length, key.
        text: Why a packet was lost or dropped, name of a fault, words of a note.
        data: The datagram of a packet that is sent; before and after of a write.
        route: IP and UDP headers of a packet that is sent.
    """

    at_ns: int
    what: What
    host: int | None
    qpn: int
    packet: int
    a: int
    b: int
    number: int
    text: str
    data: bytes
    route: _adapter.Route | None


class Trace:
    """The records of a fabric, the oldest that are kept first."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = weakref.proxy(fabric)

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
        """Writes a remark."""
        self._fabric._native.note(0, text)

    def __iter__(self) -> Iterator[Record]:
        """All records that are kept."""
        yield from self.since(0)

    def since(self, first: int) -> Iterator[Record]:
        """Records from number `first` on, counted since the beginning."""
        native = self._fabric._native
        at = max(first, self.forgotten)
        while batch := native.records(at, _BATCH):
            at += len(batch)
            for when, kind, host, qpn, packet, a, b, number, text, data, route in batch:
                yield Record(
                    when,
                    What(kind),
                    host - 1 if host else None,
                    qpn,
                    packet,
                    a,
                    b,
                    number,
                    text,
                    data,
                    route,
                )
