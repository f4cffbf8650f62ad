"""WRITEs that have landed, and which of them are not known to be done.

Over a reliable connection one is done when its work request has completed. Over an unreliable one
that says only that it has left: it is done when its packets have arrived, or are lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from softhca.testing.posted import Place, Posted
from softhca.testing.record import Record

# Whose memory a byte is, by which key, and where; the memory of this process has no other names.
At = tuple[int, int, int]


@dataclass
class Landed:
    """Bytes that a WRITE has written.

    Attributes:
        record: What the trace says of it.
        at: Where.
        where: The queue pair that wrote.
        number: Of its work request.
    """

    record: Record
    at: At
    where: Place
    number: int

    def overlap(self, other: Landed) -> int | None:
        """The first byte that both wrote; None if there is none."""
        low = max(self.at[2], other.at[2])
        ends = (one.at[2] + len(one.record.after) for one in (self, other))
        return low if self.at[:2] == other.at[:2] and low < min(ends) else None


@dataclass
class _Flight:
    where: Place
    posted: Posted
    packets: set[int] = field(default_factory=set)


class Writes:
    """Follows them by the numbers of their work requests, which are in the order of posting."""

    def __init__(self) -> None:
        self._landed: list[Landed] = []
        self._senders: dict[int, tuple[Place, int]] = {}  # By packet.
        # Over unreliable connections: packets on their way and the number that each is of; what has
        # left, by number; which is about to, with its last packet; and for those that have arrived
        # the newest number that there was by then.
        self._packets: dict[int, int] = {}
        self._flights: dict[int, _Flight] = {}
        self._leaving: dict[Place, int] = {}
        self._ended: dict[int, int] = {}

    def flying(self) -> Iterator[tuple[Place, Posted]]:
        """Those that have completed and may still change memory."""
        for flight in self._flights.values():
            yield flight.where, flight.posted

    def leaving(self, where: Place) -> int | None:
        """Number of the WRITE that a queue pair has completed and whose last packet comes next."""
        return self._leaving.pop(where, None)

    def sent(self, packet: int, where: Place, number: int, flies: bool) -> None:
        """A packet has left.

        Args:
            packet: Its number.
            where: The queue pair that sent it.
            number: Of the work request.
            flies: That completes before the packet arrives.
        """
        self._senders[packet] = (where, number)
        if flies:
            self._packets[packet] = number
            if number in self._flights:
                self._flights[number].packets.add(packet)

    def left(self, number: int, where: Place, posted: Posted, newest: int, goes_on: bool) -> None:
        """A work request over an unreliable connection has completed.

        Args:
            number: Its number.
            where: Where it was posted.
            posted: What it may still touch.
            newest: Number of the work request that was posted last.
            goes_on: Its last packet is about to leave.
        """
        posted.has_left, posted.buffers = True, []
        packets = {packet for packet, of in self._packets.items() if of == number}
        if goes_on:
            self._leaving[where] = number
        if packets or goes_on:
            self._flights[number] = _Flight(where, posted, packets)
        else:
            self._ended[number] = newest

    def arrived(self, packet: int, newest: int) -> None:
        """A packet was delivered, or lost.

        Args:
            packet: Its number.
            newest: Number of the work request that was posted last.
        """
        number = self._packets.pop(packet, None)
        flight = None if number is None else self._flights.get(number)
        if number is None or flight is None:
            return
        flight.packets.discard(packet)
        if not flight.packets:
            del self._flights[number]
            self._ended[number] = newest

    def wrote(self, record: Record, place: int | None) -> Iterator[tuple[Landed, Landed, int]]:
        """Bytes were written; gives each WRITE that wrote some of them and is not known to be done.

        Args:
            record: What the trace says of it.
            place: Where in this process; None if that is not known.
        """
        if record.packet not in self._senders:
            return
        where, number = self._senders[record.packet]
        # Of memory that is not followed, what its key calls it.
        at = (record.host or 0, record.number, record.a) if place is None else (-1, 0, place)
        landed = Landed(record, at, where, number)
        for other in self._landed:
            knew = number > self._ended.get(other.number, number)
            first = None if knew or other.where == where else other.overlap(landed)
            if first is not None:
                yield other, landed, first - at[2]
        self._landed.append(landed)

    def done(self, numbers: set[int], oldest: int) -> None:
        """Work requests have completed.

        Args:
            numbers: Their numbers.
            oldest: Number of the oldest one that has not, or of the next.
        """
        oldest = min(oldest, *self._flights) if self._flights else oldest
        over = numbers | {number for number, newest in self._ended.items() if newest < oldest}
        self._landed = [one for one in self._landed if one.number not in over]
        self._ended = {n: newest for n, newest in self._ended.items() if n not in over}

    def forget(self, where: Place) -> None:
        """A queue pair was reset or destroyed."""
        self._landed = [one for one in self._landed if one.where != where]
        self._leaving.pop(where, None)

    def lose_sight(self) -> None:
        """Nobody knows any more which packets have arrived."""
        self._packets.clear()
        self._flights.clear()
        self._leaving.clear()
