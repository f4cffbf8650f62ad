"""Work requests as awaitables: `wc = await qp.write(source[:], target)`."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, Unpack, cast

from softhca.completion.awaiting import post_and_wait
from softhca.verbs.errors import VerbsError
from softhca.verbs.mr import MR, Sge
from softhca.verbs.remote_memory import RemoteMemory
from softhca.verbs.wr import (
    CmpSwap,
    FetchAdd,
    Options,
    Read,
    Recv,
    Send,
    SendImm,
    SendInv,
    SendOptions,
    SendRequest,
    Write,
    WriteImm,
)

if TYPE_CHECKING:
    from softhca.verbs.qp import QP
    from softhca.verbs.wc import WC
    from softhca.verbs.wr import BufferLike


def _buffers_and_remote(
    arguments: tuple[Any, ...], remote: RemoteMemory | None
) -> tuple[tuple[Any, ...], RemoteMemory]:
    """Splits what a task gave: buffers, then the peer's memory."""
    if remote is None and arguments and isinstance(arguments[-1], RemoteMemory):
        return arguments[:-1], arguments[-1]
    if not isinstance(remote, RemoteMemory):
        raise TypeError(f"remote must be RemoteMemory, not {type(remote).__name__}")
    return arguments, remote


class AwaitedWork:
    """The part of a queue pair that tasks of asyncio and trio use.

    Each method posts one work request, signaled, and returns its completion when it comes, be it an
    error: `wc.raise_for_status()`. It takes what the work request of the same name takes, except
    `signaled` and `cqe`; the peer's memory may be given after the buffers.

    A task that is cancelled does not take its work request back: it still happens, and its buffers
    are kept until then.

    Raises:
        VerbsError: What posting raises; ECANCELED, if the queue pair is reset or destroyed.
    """

    __slots__ = ()

    async def _sent(self, kind: type[SendRequest], *buffers: Any, **options: Any) -> WC:
        qp = cast("QP", self)
        for name in ("cqe", "signaled"):
            if name in options:
                raise TypeError(f"{name} is not for awaited work requests")
        if qp.send_cq is None:
            raise VerbsError(errno.EINVAL, "qp", None, "has no send queue")
        return await post_and_wait(
            qp.send_cq, lambda cqe: kind(*buffers, signaled=True, cqe=cqe, **options), qp.post_send
        )

    async def send(self, *buffers: BufferLike, **options: Unpack[SendOptions]) -> WC:
        """Awaits a SEND."""
        return await self._sent(Send, *buffers, **options)

    async def send_imm(self, *buffers: BufferLike, imm: int, **options: Unpack[SendOptions]) -> WC:
        """Awaits a SEND with immediate."""
        return await self._sent(SendImm, *buffers, imm=imm, **options)

    async def send_inv(self, *buffers: BufferLike, rkey: int, **options: Unpack[SendOptions]) -> WC:
        """Awaits a SEND with invalidate."""
        return await self._sent(SendInv, *buffers, rkey=rkey, **options)

    async def write(
        self,
        *buffers: BufferLike | RemoteMemory,
        remote: RemoteMemory | None = None,
        **options: Unpack[Options],
    ) -> WC:
        """Awaits an RDMA WRITE."""
        local, far = _buffers_and_remote(buffers, remote)
        return await self._sent(Write, *local, remote=far, **options)

    async def write_imm(
        self,
        *buffers: BufferLike | RemoteMemory,
        imm: int,
        remote: RemoteMemory | None = None,
        **options: Unpack[Options],
    ) -> WC:
        """Awaits an RDMA WRITE with immediate."""
        local, far = _buffers_and_remote(buffers, remote)
        return await self._sent(WriteImm, *local, remote=far, imm=imm, **options)

    async def read(
        self,
        *buffers: BufferLike | RemoteMemory,
        remote: RemoteMemory | None = None,
        **options: Unpack[Options],
    ) -> WC:
        """Awaits an RDMA READ: the bytes are in the buffers."""
        local, far = _buffers_and_remote(buffers, remote)
        return await self._sent(Read, *local, remote=far, **options)

    async def cmp_swap(
        self,
        *buffers: BufferLike | RemoteMemory,
        compare: int,
        swap: int,
        remote: RemoteMemory | None = None,
        **options: Unpack[Options],
    ) -> WC:
        """Awaits a compare and swap: what was there before is in the buffer."""
        local, far = _buffers_and_remote(buffers, remote)
        return await self._sent(CmpSwap, *local, remote=far, compare=compare, swap=swap, **options)

    async def fetch_add(
        self,
        *buffers: BufferLike | RemoteMemory,
        add: int,
        remote: RemoteMemory | None = None,
        **options: Unpack[Options],
    ) -> WC:
        """Awaits a fetch and add: what was there before is in the buffer."""
        local, far = _buffers_and_remote(buffers, remote)
        return await self._sent(FetchAdd, *local, remote=far, add=add, **options)

    async def recv(self, *buffers: Sge | MR, wr_id: int = 0) -> WC:
        """Posts a receive and awaits its message.

        Cancelling leaves the receive posted: the next message goes into it unseen.
        """
        qp = cast("QP", self)
        if qp.recv_cq is None:
            raise VerbsError(errno.EINVAL, "qp", None, "has no receive queue")
        return await post_and_wait(
            qp.recv_cq, lambda cqe: Recv(*buffers, wr_id=wr_id, cqe=cqe), qp.post_recv
        )
