"""Completions, as values."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from softhca import _adapter
from softhca.verbs.enums import Reason, WcFlags, WcStatus
from softhca.verbs.errors import VerbsError

if TYPE_CHECKING:
    from softhca.completion.cqe import Cqe

# Of a completion without its `cqe`, as `records.WC_DTYPE` lays it out.
RECORD_BYTES = 72

# Always of an access: a key or an address of 0 is one that somebody gave.
_ACCESSES = frozenset({WcStatus.LOC_PROT_ERR, WcStatus.REM_ACCESS_ERR})
# What comes of no packet has no PSN.
_OURS_ALONE = frozenset(
    {WcStatus.LOC_LEN_ERR, WcStatus.LOC_QP_OP_ERR, WcStatus.LOC_PROT_ERR, WcStatus.MW_BIND_ERR}
)


class CompletionError(VerbsError):
    """A work request completed in error; `wc` says all about it."""

    def __init__(self, wc: WC) -> None:
        super().__init__(errno.EIO, rule=wc.why)
        self.wc: WC = wc

    def __reduce__(self) -> tuple[type[CompletionError], tuple[WC]]:
        return CompletionError, (self.wc,)


class WC(_adapter.Completion):
    """A work completion (struct ibv_wc), immutable.

    Attributes:
        wr_id: What the work request was given.
        status: How it ended.
        opcode: What it did.
        qp_num: Number of the queue pair.
        byte_len: Bytes that a receive got, on UD with the 40 of the header; of a READ or an atomic
            those that were asked for. 0 for other sends.
        wc_flags: What came with a receive.
        immediate_or_rkey: The immediate or the invalidated key; see `imm_data` and
            `invalidated_rkey`.
        src_qp: UD: the queue pair that sent it.
        pkey_index: UD: entry of the P_Key table.
        sl: UD: service level.
        port: 1.
        is_receive: True if it is of a receive.
        solicited: True if the sender asked to wake who waits for solicited completions.
        cqe: The callback that was posted with the work request; None if there was none.
        timestamp_ns: When, by `device.clock_ns`; 0 for a queue without timestamps.
        reason: Why it failed.
        by_peer: True if the peer refused it.
        psn: PSN of the packet that it failed with.
        key: Key of the access that was refused, as are `address` and `length`.
        address: Its first byte.
        length: Its bytes.

    Of one in error only wr_id, status, qp_num and what explains the error are defined: `reason`,
    `by_peer`, and, where an access was refused, `psn`, `key`, `address` and `length`.

    It can be pickled, without its `cqe`, which stays in its process, and is equal to what comes out
    of it if it had none.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def cqe(self) -> Cqe | None: ...

    def _record(self) -> bytes:
        record = bytearray(RECORD_BYTES)
        _adapter.store_completion(self, _adapter.CompletionRecords(memoryview(record)), 0)
        return bytes(record)

    def __eq__(self, other: object) -> bool:
        """True for the same completion, wherever it was made: all fields, and the same callback."""
        if not isinstance(other, WC):
            return NotImplemented
        return self is other or (self.cqe is other.cqe and self._record() == other._record())

    def __hash__(self) -> int:
        return hash(self._record())

    def __reduce__(self) -> tuple[object, ...]:
        # Classes derived from it may keep more.
        return _of_record, (type(self), self._record()), getattr(self, "__dict__", None)

    def __copy__(self) -> WC:
        return self

    def __deepcopy__(self, memo: object) -> WC:
        return self

    @property
    def ok(self) -> bool:
        """True if the work request succeeded."""
        return self.status is WcStatus.SUCCESS

    @property
    def imm_data(self) -> int | None:
        """The peer's immediate; None if the message carried none."""
        return self.immediate_or_rkey if self.wc_flags & WcFlags.WITH_IMM else None

    @property
    def invalidated_rkey(self) -> int | None:
        """The key that the peer's SEND invalidated; None if it invalidated none."""
        return self.immediate_or_rkey if self.wc_flags & WcFlags.WITH_INV else None

    @property
    def vendor_err(self) -> int:
        """The number of `reason`."""
        return int(self.reason)

    @property
    def why(self) -> str:
        """A sentence: who refused, what, and for what reason; empty if the work succeeded."""
        if self.ok:
            return ""
        kind = "receive" if self.is_receive else "send"
        sentence = f"{kind} {self.wr_id:#x} of QP {self.qp_num:#x}: {self.status.name}"
        if self.reason is not Reason.NONE:
            text = _adapter.reason_text(self.reason)
            if self.by_peer and not text.startswith("the peer"):
                text = f"the peer refused: {text}"
            sentence += f": {text}"
        details = self._details()
        return f"{sentence} ({', '.join(details)})" if details else sentence

    def _details(self) -> list[str]:
        """The access and the PSN that it failed with, as far as there were any."""
        is_access = self.status in _ACCESSES
        details = []
        if self.key or is_access:
            is_local = is_access and not self.by_peer and not self.is_receive
            details.append(f"{'lkey' if is_local else 'key'} {self.key:#x}")
        if self.address or is_access:
            details.append(f"address {self.address:#x}")
        if self.length or is_access:
            details.append(f"{self.length} bytes")
        has_psn = self.psn != 0 or self.status not in _OURS_ALONE
        if has_psn and self.reason not in (Reason.NONE, Reason.FLUSHED):
            details.append(f"PSN {self.psn:#x}")
        return details

    def raise_for_status(self) -> None:
        """Does nothing if the work request succeeded.

        Raises:
            CompletionError: EIO, with `why` as its message, if it did not.
        """
        if not self.ok:
            raise CompletionError(self)

    def __repr__(self) -> str:
        if not self.ok:
            return f"<WC {self.why}>"
        return (
            f"<WC {self.opcode.name} wr_id={self.wr_id:#x} byte_len={self.byte_len} "
            f"qp_num={self.qp_num:#x}>"
        )


def _of_record(cls: type[WC], record: bytes) -> WC:
    return _adapter.CompletionRecords(memoryview(bytearray(record))).completion(0, cls)


_adapter.quicken_completions(WC)
