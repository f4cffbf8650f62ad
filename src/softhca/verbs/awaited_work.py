"""Work requests as awaitables: `wc = await qp.write(source[:], target)`."""

from __future__ import annotations

import errno
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack, cast

from softhca.completion.awaiting import post_and_wait
from softhca.verbs.enums import FlushLevel, FlushType
from softhca.verbs.errors import VerbsError
from softhca.verbs.mr import Registered, Sge
from softhca.verbs.remote_memory import RemoteMemory
from softhca.verbs.wr import (
    AwaitedOptions,
    AwaitedSendOptions,
    CmpSwap,
    FetchAdd,
    Read,
    Recv,
    Send,
    SendImm,
    SendInv,
    SendRequest,
    Write,
    WriteImm,
)
from softhca.verbs.wr_memory import LocalInv
from softhca.verbs.wr_more import AtomicWrite, Flush, MaskedCmpSwap, MaskedFetchAdd

if TYPE_CHECKING:
    from softhca.verbs.qp import QP
    from softhca.verbs.wc import WC
    from softhca.verbs.wr import BufferLike
    from softhca.verbs.wr_memory import AwaitedLocalOptions


# Has been posted; awaiting it gives the completion.
Posted: TypeAlias = "Coroutine[Any, Any, WC]"

# What the task itself stands for.
_NOT_FOR_TASKS = frozenset({"cqe", "signaled"})


def _buffers_and_remote(
    arguments: tuple[Any, ...], remote: RemoteMemory | None
) -> tuple[tuple[Any, ...], RemoteMemory]:
    """Splits what a task gave: buffers, then the peer's memory."""
    if remote is None and arguments and isinstance(arguments[-1], RemoteMemory):
        return arguments[:-1], arguments[-1]
    if not isinstance(remote, RemoteMemory):
        # Of several the last was meant to be it.
        meant = arguments[-1] if remote is None and len(arguments) > 1 else remote
        raise TypeError(f"remote must be RemoteMemory, not {type(meant).__name__}")
    return arguments, remote


class AwaitedWork:
    """The part of a queue pair that tasks of asyncio and trio use.

    Each method posts one work request, signaled, when it is called, and returns a coroutine that
    waits for the completion and returns it, be it an error: `wc.raise_for_status()`. So a receive
    can be posted now and awaited later: `coming = qp.recv(mr[:64])`. Each takes what the work
    request of the same name takes, except `signaled` and `cqe`; the peer's memory may be given
    after the buffers. `BindMw` and `RegMr` are posted: what is posted behind them finds them done.

    A task that is cancelled does not take its work request back: it still happens, and its buffers
    are kept until then.

    Raises:
        VerbsError: What posting raises; ECANCELED, if the queue pair is reset or destroyed.
    """

    __slots__ = ()

    def _sent(self, kind: type[SendRequest], *buffers: Any, **options: Any) -> Posted:
        qp = cast("QP", self)
        if options and not options.keys().isdisjoint(_NOT_FOR_TASKS):
            name = min(options.keys() & _NOT_FOR_TASKS)
            raise TypeError(f"{name} is not for awaited work requests")
        if qp.send_cq is None:
            raise VerbsError(errno.EINVAL, "qp", None, "has no send queue")
        return post_and_wait(
            qp.send_cq, lambda cqe: kind(*buffers, signaled=True, cqe=cqe, **options), qp.post_send
        )

    def send(self, *buffers: BufferLike, **options: Unpack[AwaitedSendOptions]) -> Posted:
        """Posts a SEND."""
        return self._sent(Send, *buffers, **options)

    def send_imm(
        self, *buffers: BufferLike, imm: int, **options: Unpack[AwaitedSendOptions]
    ) -> Posted:
        """Posts a SEND with immediate."""
        return self._sent(SendImm, *buffers, imm=imm, **options)

    def send_inv(
        self, *buffers: BufferLike, rkey: int, **options: Unpack[AwaitedSendOptions]
    ) -> Posted:
        """Posts a SEND with invalidate."""
        return self._sent(SendInv, *buffers, rkey=rkey, **options)

    def write(
        self,
        *buffers: BufferLike | RemoteMemory,
        remote: RemoteMemory | None = None,
        **options: Unpack[AwaitedOptions],
    ) -> Posted:
        """Posts an RDMA WRITE."""
        local, far = _buffers_and_remote(buffers, remote)
        return self._sent(Write, *local, remote=far, **options)

    def write_imm(
        self,
        *buffers: BufferLike | RemoteMemory,
        imm: int,
        remote: RemoteMemory | None = None,
        **options: Unpack[AwaitedOptions],
    ) -> Posted:
        """Posts an RDMA WRITE with immediate."""
        local, far = _buffers_and_remote(buffers, remote)
        return self._sent(WriteImm, *local, remote=far, imm=imm, **options)

    def read(
        self,
        *buffers: BufferLike | RemoteMemory,
        remote: RemoteMemory | None = None,
        **options: Unpack[AwaitedOptions],
    ) -> Posted:
        """Posts an RDMA READ: the bytes are in the buffers."""
        local, far = _buffers_and_remote(buffers, remote)
        return self._sent(Read, *local, remote=far, **options)

    def cmp_swap(
        self,
        *buffers: BufferLike | RemoteMemory,
        compare: int,
        swap: int,
        remote: RemoteMemory | None = None,
        **options: Unpack[AwaitedOptions],
    ) -> Posted:
        """Posts a compare and swap: what was there before is in the buffer."""
        local, far = _buffers_and_remote(buffers, remote)
        return self._sent(CmpSwap, *local, remote=far, compare=compare, swap=swap, **options)

    def fetch_add(
        self,
        *buffers: BufferLike | RemoteMemory,
        add: int,
        remote: RemoteMemory | None = None,
        **options: Unpack[AwaitedOptions],
    ) -> Posted:
        """Posts a fetch and add: what was there before is in the buffer."""
        local, far = _buffers_and_remote(buffers, remote)
        return self._sent(FetchAdd, *local, remote=far, add=add, **options)

    def masked_cmp_swap(
        self,
        *buffers: BufferLike | RemoteMemory,
        compare: int,
        compare_mask: int,
        swap: int,
        swap_mask: int,
        remote: RemoteMemory | None = None,
        **options: Unpack[AwaitedOptions],
    ) -> Posted:
        """Posts a compare and swap of some bits: what was there before is in the buffer."""
        local, far = _buffers_and_remote(buffers, remote)
        masks = {"compare_mask": compare_mask, "swap_mask": swap_mask}
        return self._sent(
            MaskedCmpSwap, *local, remote=far, compare=compare, swap=swap, **masks, **options
        )

    def masked_fetch_add(
        self,
        *buffers: BufferLike | RemoteMemory,
        add: int,
        boundary: int,
        remote: RemoteMemory | None = None,
        **options: Unpack[AwaitedOptions],
    ) -> Posted:
        """Posts an addition to fields: what was there before is in the buffer."""
        local, far = _buffers_and_remote(buffers, remote)
        return self._sent(MaskedFetchAdd, *local, remote=far, add=add, boundary=boundary, **options)

    def atomic_write(
        self,
        *buffers: BufferLike | RemoteMemory,
        remote: RemoteMemory | None = None,
        **options: Unpack[AwaitedOptions],
    ) -> Posted:
        """Posts an ATOMIC WRITE."""
        local, far = _buffers_and_remote(buffers, remote)
        return self._sent(AtomicWrite, *local, remote=far, **options)

    def flush(
        self,
        remote: RemoteMemory,
        *,
        flush_type: int = FlushType.GLOBAL,
        level: int = FlushLevel.RANGE,
        **options: Unpack[AwaitedLocalOptions],
    ) -> Posted:
        """Posts a FLUSH: earlier WRITEs are visible to all of the peer."""
        return self._sent(Flush, remote=remote, flush_type=flush_type, level=level, **options)

    def local_inv(self, rkey: int, **options: Unpack[AwaitedLocalOptions]) -> Posted:
        """Posts the invalidation of a key of ours: nobody reaches memory by it any more."""
        return self._sent(LocalInv, rkey, **options)

    def recv(self, *buffers: Sge | Registered, wr_id: int = 0) -> Posted:
        """Posts a receive; its message is awaited.

        Cancelling leaves the receive posted: the next message goes into it unseen.
        """
        qp = cast("QP", self)
        if qp.recv_cq is None:
            raise VerbsError(errno.EINVAL, "qp", None, "has no receive queue")
        return post_and_wait(
            qp.recv_cq, lambda cqe: Recv(*buffers, wr_id=wr_id, cqe=cqe), qp.post_recv
        )
