"""Whether bytes were touched with a right to it: an oracle that does not ask the adapter.

It knows what programs registered, bound and invalidated, what rights queue pairs give, and what
packets asked for, all from the trace; and compares every byte that changed, and every READ that was
answered, with that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from softhca import _adapter
from softhca._adapter import Access
from softhca.testing.record import Record
from softhca.verbs.enums import QPType

Wrong = Callable[[Record, str], None]
Place = tuple[int, int]  # Host and key, or host and queue pair.

_TRANSPORT = 0xE0
_WRITES = range(0x06, 0x0C)
_FIRST_WRITES = {0x06, 0x0A, 0x0B}
_READ_REQUEST = 0x0C
_READ_RESPONSES = range(0x0D, 0x11)
_ATOMICS = {0x13, 0x14}
_ATOMIC_WRITE = 0x1D
# Requests of a connection that may still wait for their turn.
_REMEMBERED = 512
_SMALLEST_MTU = 256
_PSNS = 1 << 24


@dataclass
class _Key:
    first: int
    end: int
    access: int
    pd: int
    qpn: int
    is_window: bool


@dataclass
class _Read:
    psn: int
    key: int
    first: int
    end: int


@dataclass
class _QueuePair:
    kind: int
    pd: int
    receive_pd: int  # Of the shared receive queue, if it has one.
    rights: int = 0
    message: tuple[int, int, int] | None = None  # Key, first address and end of a WRITE.
    # What changes eight bytes and may wait for its turn: key, address, and the right it takes.
    words: deque[tuple[int, int, Access]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    reads: deque[_Read] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))


def may_answer(psn: int, asked_psn: int, length: int) -> bool:
    """Whether a READ takes this PSN; a response that another follows holds the smallest MTU."""
    return (psn - asked_psn) % _PSNS <= max(length - 1, 0) // _SMALLEST_MTU


def operation_of(opcode: int) -> int:
    """The operation of an opcode, whatever the transport."""
    return opcode & ~_TRANSPORT


class Rights:
    """Knows keys and queue pairs; `wrong` is told what was touched without a right."""

    def __init__(self, wrong: Wrong) -> None:
        self._wrong = wrong
        self._keys: dict[Place, _Key] = {}
        self._qps: dict[Place, _QueuePair] = {}

    def created(self, record: Record) -> None:
        """A queue pair was made."""
        receives = int.from_bytes(record.data[4:8], "big") or record.a
        self._qps[record.host or 0, record.qpn] = _QueuePair(record.b, record.a, receives)

    def changed(self, record: Record) -> None:
        """A queue pair changed its state: what it gives to peers may be another."""
        qp = self._qps.get((record.host or 0, record.qpn))
        if qp is not None:
            qp.rights = record.a >> 8
            if record.b == 0:
                qp.message = None
                qp.words.clear()
                qp.reads.clear()

    def named(self, record: Record) -> None:
        """A key stands for other memory from now on, or for none."""
        place = (record.host or 0, record.number)
        if not record.data:
            if self._keys.pop(place, None) is None:
                self._wrong(record, f"takes away key {record.number:#x}, which stood for nothing")
            return
        length = int.from_bytes(record.data[:8], "big")
        pd = int.from_bytes(record.data[8:12], "big")
        window = bool(record.data[12])
        self._keys[place] = _Key(record.a, record.a + length, record.b, pd, record.qpn, window)

    def arrived(self, record: Record, packet: _adapter.Packet) -> None:
        """A request came to a queue pair: it may ask for what is answered later."""
        qp = self._qps.get((record.host or 0, record.qpn))
        if qp is None:
            return
        operation = operation_of(packet.opcode)
        if operation == _READ_REQUEST:
            start = packet.virtual_address
            qp.reads.append(_Read(packet.psn, packet.rkey, start, start + packet.dma_length))
        else:
            self._remember(qp, packet)

    @staticmethod
    def _remember(qp: _QueuePair, packet: _adapter.Packet) -> None:
        """A word may be changed while a later packet is executed."""
        operation = operation_of(packet.opcode)
        if operation in _ATOMICS:
            qp.words.append((packet.atomic_rkey, packet.atomic_address, Access.REMOTE_ATOMIC))
        elif operation == _ATOMIC_WRITE:
            qp.words.append((packet.rkey, packet.virtual_address, Access.REMOTE_WRITE))

    def wrote(self, record: Record, packet: _adapter.Packet | None) -> bool:
        """Bytes changed. True: by an atomic, which may have come in an earlier packet."""
        host = record.host or 0
        key = self._keys.get((host, record.number))
        end = record.a + len(record.data) // 2
        if key is None:
            self._wrong(record, f"writes by key {record.number:#x}, which stands for nothing")
            return False
        if not (key.first <= record.a and end <= key.end):
            self._wrong(record, f"writes {record.a:#x} to {end:#x}, beyond its key")
        if packet is None:  # An atomic whose turn came later, or the host itself.
            if not key.access & (Access.LOCAL_WRITE | Access.REMOTE_ATOMIC):
                self._wrong(record, "writes by a key that gives no right to write")
            return True
        qp = self._qps.get((host, packet.destination_qpn))
        return qp is not None and self._wrote_for(record, packet, key, qp, end)

    def _wrote_for(
        self, record: Record, packet: _adapter.Packet, key: _Key, qp: _QueuePair, end: int
    ) -> bool:
        operation = operation_of(packet.opcode)
        self._remember(qp, packet)
        if operation == _ATOMIC_WRITE:
            qp.message = (packet.rkey, packet.virtual_address, packet.virtual_address + 8)
        elif operation in _FIRST_WRITES:
            start = packet.virtual_address
            qp.message = (packet.rkey, start, start + packet.dma_length)
        writes = operation in _WRITES or operation == _ATOMIC_WRITE
        asked = qp.message
        inside = asked and asked[0] == record.number and asked[1] <= record.a <= end <= asked[2]
        word = next((w for w in reversed(qp.words) if w[:2] == (record.number, record.a)), None)
        waited = record.after != packet.payload or (writes and not inside)
        is_a_word = word is not None and end == record.a + 8 and waited
        pd = qp.pd if writes or is_a_word else qp.receive_pd
        if qp.kind not in (QPType.XRC_SEND, QPType.XRC_RECV) and key.pd != pd:
            self._wrong(record, "writes in another protection domain")
        if key.qpn not in (0, packet.destination_qpn):
            self._wrong(record, "writes by a window of another queue pair")
        if word is not None and is_a_word:
            self._demand(record, key, qp, word[2])
            return True
        if writes:
            self._demand(record, key, qp, Access.REMOTE_WRITE)
            if not inside:
                self._wrong(record, f"writes {record.a:#x} to {end:#x}, which was not asked for")
        elif key.is_window or not key.access & Access.LOCAL_WRITE:
            self._wrong(record, "lands by a key that gives no right to write")
        return False

    def _demand(self, record: Record, key: _Key, qp: _QueuePair, right: Access) -> None:
        if not key.access & right:
            self._wrong(record, f"writes by a key without {right.name}")
        if not qp.rights & right:
            self._wrong(record, f"writes for a queue pair without {right.name}")

    def answers(self, record: Record, packet: _adapter.Packet) -> None:
        """A packet is sent: if it answers a READ, its bytes must have been there to be read."""
        if operation_of(packet.opcode) not in _READ_RESPONSES or not packet.payload:
            return
        host = record.host or 0
        qp = self._qps.get((host, record.qpn))
        if qp is None:
            return
        read = next(
            (r for r in reversed(qp.reads) if may_answer(packet.psn, r.psn, r.end - r.first)), None
        )
        if read is None:
            self._wrong(record, f"answers a READ of PSN {packet.psn} that nobody asked for")
            return
        key = self._keys.get((host, read.key))
        if key is None:
            self._wrong(record, f"reads by key {read.key:#x}, which stands for nothing")
        elif not (key.first <= read.first and read.end <= key.end):
            self._wrong(record, f"reads {read.first:#x} to {read.end:#x}, beyond the key")
        elif not key.access & Access.REMOTE_READ or not qp.rights & Access.REMOTE_READ:
            self._wrong(record, "reads without REMOTE_READ")
        elif qp.kind not in (QPType.XRC_SEND, QPType.XRC_RECV) and key.pd != qp.pd:
            self._wrong(record, "reads in another protection domain")
        elif key.qpn not in (0, record.qpn):
            self._wrong(record, "reads by a window of another queue pair")
