"""Work requests beyond the first verbs: masked atomics, ATOMIC WRITE, FLUSH."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Unpack

from softhca.verbs.checks import instance, unsigned
from softhca.verbs.enums import FlushLevel, FlushType, WrOpcode
from softhca.verbs.errors import VerbsError
from softhca.verbs.remote_memory import RemoteMemory
from softhca.verbs.wr import Options, SendRequest

if TYPE_CHECKING:
    from softhca.verbs.wr import BufferLike
    from softhca.verbs.wr_memory import LocalOptions


class MaskedCmpSwap(SendRequest):
    """Compare and swap of some bits of eight bytes (IB_WR_MASKED_ATOMIC_CMP_AND_SWP).

    If all bits of `compare_mask` are as in `compare`, those of `swap_mask` become as in `swap`.
    What was there before comes into our buffer. Between adapters that both report
    `masked_atomic_cap`; any other drops it unanswered, which ends in RETRY_EXC_ERR.
    """

    __slots__ = ()

    def __init__(
        self,
        *buffers: BufferLike,
        remote: RemoteMemory,
        compare: int,
        compare_mask: int,
        swap: int,
        swap_mask: int,
        **options: Unpack[Options],
    ) -> None:
        """Takes wr_id, signaled, fence, solicited, inline, srqn, cqe besides: see `SendRequest`."""
        operands = {
            "compare": compare,
            "compare_mask": compare_mask,
            "swap": swap,
            "swap_mask": swap_mask,
        }
        opcode = WrOpcode.MASKED_ATOMIC_CMP_AND_SWP
        super().__init__(opcode, buffers, remote=remote, operands=operands, **options)


class MaskedFetchAdd(SendRequest):
    """Addition to fields of eight bytes (IB_WR_MASKED_ATOMIC_FETCH_AND_ADD).

    Each bit of `boundary` is the last one of a field, out of which nothing is carried. What was
    there before comes into our buffer. Peers as for `MaskedCmpSwap`.
    """

    __slots__ = ()

    def __init__(
        self,
        *buffers: BufferLike,
        remote: RemoteMemory,
        add: int,
        boundary: int,
        **options: Unpack[Options],
    ) -> None:
        """Takes wr_id, signaled, fence, solicited, inline, srqn, cqe besides: see `SendRequest`."""
        operands = {"add": add, "boundary": boundary}
        opcode = WrOpcode.MASKED_ATOMIC_FETCH_AND_ADD
        super().__init__(opcode, buffers, remote=remote, operands=operands, **options)


class AtomicWrite(SendRequest):
    """RDMA WRITE of eight aligned bytes, which readers see whole or not at all (IBTA Annex A19).

    Raises:
        VerbsError: EINVAL, if the buffers are not eight bytes, or `remote` is shorter.
    """

    __slots__ = ()

    def __init__(
        self, *buffers: BufferLike, remote: RemoteMemory, **options: Unpack[Options]
    ) -> None:
        """Takes wr_id, signaled, fence, solicited, inline, srqn, cqe besides: see `SendRequest`."""
        super().__init__(WrOpcode.ATOMIC_WRITE, buffers, remote=remote, **options)
        if self.byte_count != 8:
            raise VerbsError(errno.EINVAL, "buffers", self.byte_count, "must be 8 bytes")


class Flush(SendRequest):
    """Makes earlier WRITEs of the queue pair visible to all of the peer (IBTA Annex A19).

    Completes when they are. The peer's region and queue pair must give FLUSH_GLOBAL. Persistence
    is not something that this adapter's memory has: who asks a softhca peer for it is refused.

    Raises:
        VerbsError: EINVAL, if `remote` is longer than 2^31 bytes and `level` RANGE.
    """

    __slots__ = ()

    def __init__(
        self,
        *,
        remote: RemoteMemory,
        flush_type: int = FlushType.GLOBAL,
        level: int = FlushLevel.RANGE,
        **options: Unpack[LocalOptions],
    ) -> None:
        """Takes wr_id, signaled, fence and cqe besides: see `SendRequest`."""
        far = instance("remote", remote, RemoteMemory)
        whole = unsigned("level", level, 8, most=1) == FlushLevel.MR
        length = 0 if whole else unsigned("remote", far.length, 32, most=1 << 31)
        kind = unsigned("flush_type", flush_type, 8, most=3)
        if not kind:
            raise VerbsError(errno.EINVAL, "flush_type", kind, "must be GLOBAL, PERSISTENT or both")
        super().__init__(
            WrOpcode.FLUSH,
            (),
            fields={
                "remote_address": far.addr,
                "rkey": far.rkey,
                "flush": (length, kind, int(whole)),
            },
            **options,
        )
