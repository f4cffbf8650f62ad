"""What must hold in every run, whatever is lost: checked against the trace.

The checker reads records alone. It does not ask the adapters, whose mistakes it is to find.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from softhca import _adapter
from softhca.testing.balance import Owed, imbalances
from softhca.testing.errors import FabricError
from softhca.testing.record import DESTROYED, RECEIVE, SHARED, SIGNALED, Record, What
from softhca.testing.record_text import record_text
from softhca.testing.rights import Rights, may_answer, operation_of
from softhca.verbs.device import Device
from softhca.verbs.enums import QPState, WcStatus

_PSNS = 1 << 24
_FLUSH = int(WcStatus.WR_FLUSH_ERR)
# Transports of reliable connections: RC and XRC, and those of their masked atomics (decision 12).
_RELIABLE = (0, 5, 6, 7)
# Operations of reliable connections that a responder answers, and answers.
_ACKNOWLEDGES = {0x11, 0x12}
_ANSWERS = {0x0D, 0x0E, 0x0F, 0x10, 0x11, 0x12}
_SEQUENCE_NAK = 0x60
_LAST_ANSWERS = {0x0F, 0x10, 0x12}
# What is answered by more than an acknowledgement.
_ANSWERED = {0x0C, 0x13, 0x14, 0x1C, 0x1D}
_READ_REQUEST = 0x0C
_ATOMICS = {0x13, 0x14}
_WRITES = range(0x06, 0x0C)
_ENDS_A_RECEIVE = {0x02, 0x03, 0x04, 0x05, 0x09, 0x0B, 0x16, 0x17}


class InvariantError(FabricError):
    """The transport broke a rule that no fault excuses."""


def _is_reliable(opcode: int) -> bool:
    return opcode >> 5 in _RELIABLE


def _behind(psn: int, other: int) -> bool:
    """True if a PSN is before another one, in a window of half of them."""
    return psn != other and (other - psn) % _PSNS < _PSNS // 2


@dataclass
class _Side:
    """One queue pair, since it last left RESET."""

    sends: deque[tuple[int, bool]] = field(default_factory=deque)
    receives: deque[int] = field(default_factory=deque)
    takes_receives: bool = False
    in_error: bool = False
    send_failed: bool = False
    ambiguous: bool = False  # Which requests have completed is not known: names were used twice.
    flushing: bool = False  # Every request completes, unsignaled ones too.
    arrived: set[int] = field(default_factory=set)
    placed: set[int] = field(default_factory=set)
    executed: dict[int, int] = field(default_factory=dict)  # Atomics: packet by PSN.
    last_receive: int | None = None
    reads: dict[int, int] = field(default_factory=dict)  # Bytes by PSN.
    asked: deque[int] = field(default_factory=deque)  # READs and atomics without an answer.
    asks_at_most: int | None = None
    answers_at_most: int | None = None
    complained: set[int] = field(default_factory=set)  # Sequence NAKs.
    payloads: dict[int, tuple[int, int]] = field(default_factory=dict)


class Invariants:
    """Checks records one by one; `violations` says what is wrong.

    Attributes:
        violations: In the order in which they were found.
    """

    def __init__(self) -> None:
        self.violations: list[str] = []
        self._sides: dict[tuple[int, int], _Side] = {}
        self._destroyed: set[tuple[int, int]] = set()
        self._packets: dict[int, _adapter.Packet] = {}
        self._rights = Rights(self._wrong)
        self._delivered_before: set[int] = set()
        self._written: dict[int, bytes] = {}

    def check(self, records: Iterable[Record]) -> None:
        """Looks at records, which follow those it has seen."""
        for record in records:
            match record.what:
                case What.SENT:
                    self._sent(record)
                case What.DELIVERED:
                    self._delivered(record)
                case What.POST:
                    self._posted(record)
                case What.COMPLETION:
                    self._completed(record)
                case What.STATE:
                    self._changed(record)
                case What.WRITE:
                    self._wrote(record)
                case What.CREATED:
                    self._rights.created(record)
                case What.KEY:
                    self._rights.named(record)

    def _wrong(self, record: Record, rule: str) -> None:
        self.violations.append(
            f"{record.at_ns} ns, host {record.host}, qp {record.qpn:#x}: {rule} "
            f"(packet {record.packet}: {record_text(record)})"
        )

    def _side(self, record: Record) -> _Side:
        return self._sides.setdefault((record.host or 0, record.qpn), _Side())

    # --- packets

    def _sent(self, record: Record) -> None:
        packet = _adapter.Packet.decode(record.data)
        syndrome = packet.syndrome
        self._packets[record.packet] = packet
        if record.b == 2:
            return
        self._rights.answers(record, packet)
        if not _is_reliable(packet.opcode):
            return
        side = self._sides.get((record.host or 0, record.qpn))
        if side is None:
            return
        operation = operation_of(packet.opcode)
        if record.b == 0 and operation in _ANSWERED:
            side.asked.append(packet.psn)
            if side.asks_at_most is not None and len(side.asked) > max(1, side.asks_at_most):
                rule = f"asks for {len(side.asked)} READs and atomics at once"
                self._wrong(record, f"{rule}, of {side.asks_at_most} that were agreed")
        if operation in _ACKNOWLEDGES and syndrome >> 5 == 0:
            self._acknowledged(record, side, packet.psn)
        elif operation in _ACKNOWLEDGES and syndrome == _SEQUENCE_NAK:
            if packet.psn in side.complained:
                self._wrong(record, f"complains of PSN {packet.psn} a second time")
            side.complained.add(packet.psn)

    def _acknowledged(self, record: Record, side: _Side, psn: int) -> None:
        # A READ takes a PSN for each packet of its answer.
        in_a_read = any(may_answer(psn, read, length) for read, length in side.reads.items())
        if side.arrived and psn not in side.arrived and not in_a_read:
            self._wrong(record, f"acknowledges PSN {psn}, which has not arrived")
        elif psn in side.payloads and psn not in side.placed:
            self._wrong(record, f"acknowledges PSN {psn} before its data are in memory")

    def _delivered(self, record: Record) -> None:
        packet = self._packets.get(record.packet)
        written = self._written.pop(record.packet, b"")
        if packet is None or record.text:
            return
        self._rights.arrived(record, packet)
        if not _is_reliable(packet.opcode):
            return
        side = self._side(record)
        operation = operation_of(packet.opcode)
        if operation in _ANSWERS:
            # If it is not the one that is due, less is known to be unanswered than is.
            while operation in _LAST_ANSWERS and side.asked:
                if _behind(packet.psn, side.asked[0]):
                    break
                side.asked.popleft()
            return
        psn = packet.psn
        again = psn in side.arrived and psn in side.placed
        if record.packet not in self._delivered_before:  # Else it is doubled, perhaps long ago.
            side.arrived.add(psn)
            if operation == _READ_REQUEST:
                side.reads[psn] = max(packet.dma_length, side.reads.get(psn, 0))
        self._delivered_before.add(record.packet)
        if operation in _WRITES and packet.payload:
            side.payloads[psn] = (packet.opcode, len(packet.payload))
            if written and written != packet.payload:
                self._wrong(record, "writes other bytes than the packet carries")
            if written and again:
                self._wrong(record, f"executes PSN {psn} a second time")
            if written:
                side.placed.add(psn)
        elif operation in _ATOMICS and written:
            if psn in side.executed:
                self._wrong(record, f"executes the atomic of PSN {psn} a second time")
            side.executed[psn] = record.packet

    def _wrote(self, record: Record) -> None:
        packet = self._packets.get(record.packet)
        is_of_atomic = self._rights.wrote(record, packet)
        is_atomic = packet is not None and operation_of(packet.opcode) in _ATOMICS
        if packet is not None and (is_atomic or not is_of_atomic):
            self._written[record.packet] = self._written.get(record.packet, b"") + record.after

    # --- work requests

    def _posted(self, record: Record) -> None:
        if record.b & SHARED or self._gone(record):
            return
        side = self._side(record)
        if record.b & RECEIVE:
            side.receives.append(record.a)
            side.takes_receives = True
        else:
            side.sends.append((record.a, bool(record.b & SIGNALED)))

    def _gone(self, record: Record) -> bool:
        if (record.host or 0, record.qpn) not in self._destroyed:
            return False
        self._wrong(record, "happens to a queue pair that was destroyed")
        return True

    def _completed(self, record: Record) -> None:
        if self._gone(record):
            return
        side = self._side(record)
        status = record.b & 255
        if side.in_error and status == 0:
            self._wrong(record, "completes with success after the queue pair went to ERR")
        if record.b & RECEIVE:
            self._receive_completed(record, side, status)
        else:
            self._send_completed(record, side, status)

    def _send_completed(self, record: Record, side: _Side, status: int) -> None:
        if side.send_failed and status == 0:
            self._wrong(record, "completes with success behind a work request that failed")
        if status not in (0, _FLUSH):
            side.send_failed = True
        before, side.flushing = side.flushing, status != 0
        while side.sends:
            wr_id, signaled = side.sends.popleft()
            if wr_id == record.a and (signaled or status != 0):
                # An error may also be of a later request by the same name.
                side.ambiguous |= not signaled and any(wr_id == later for later, _ in side.sends)
                return
            if signaled or before:
                break
        self._wrong(record, "completes out of the order of posting, or what was never posted")

    def _receive_completed(self, record: Record, side: _Side, status: int) -> None:
        if side.takes_receives and (not side.receives or side.receives.popleft() != record.a):
            self._wrong(record, "completes a receive out of the order of posting")
        packet = self._packets.get(record.packet)
        if status != 0 or packet is None or not _is_reliable(packet.opcode):
            return
        if operation_of(packet.opcode) not in _ENDS_A_RECEIVE:
            self._wrong(record, "completes a receive in the middle of a message")
        elif side.last_receive is not None and not _behind(side.last_receive, packet.psn):
            self._wrong(record, f"delivers the message of PSN {packet.psn} a second time")
        side.last_receive = packet.psn

    def _changed(self, record: Record) -> None:
        where = (record.host or 0, record.qpn)
        if record.b != DESTROYED:
            self._rights.changed(record)
        if record.b == DESTROYED:
            self._sides.pop(where, None)
            self._destroyed.add(where)
            return
        if record.a & 255 == QPState.RESET:
            self._destroyed.discard(where)
        side = self._side(record)
        if record.b == QPState.RESET:
            self._sides[where] = _Side()
        elif record.b == QPState.ERR:
            side.in_error = True
            side.asked.clear()
        elif record.b == QPState.SQD and record.a & 255 == QPState.SQD:
            side.answers_at_most = None  # It may have changed, and the record tells what is asked.
        elif record.b == QPState.RTR:
            side.answers_at_most = record.number
        elif record.b == QPState.RTS:
            side.in_error = side.send_failed = side.flushing = False
            side.asks_at_most = record.number

    # --- what is left

    def balance(self, devices: Sequence[Device]) -> None:
        """Compares what queue pairs hold with what the records say that they must."""
        self.violations += imbalances(devices, self._owed)

    def _owed(self, host: int, qpn: int) -> Owed | None:
        side = self._sides.get((host, qpn))
        if side is None:
            return None
        receives = len(side.receives) if side.takes_receives else None
        sends = None if side.ambiguous else len(side.sends)
        return Owed(sends, receives, side.answers_at_most)


def check_invariants(records: Iterable[Record]) -> None:
    """Checks a whole trace.

    Raises:
        InvariantError: With all that is wrong.
    """
    checker = Invariants()
    checker.check(records)
    if checker.violations:
        more = len(checker.violations) - 10
        lines = checker.violations[:10] + ([f"and {more} more"] if more > 0 else [])
        raise InvariantError("\n".join(lines))
