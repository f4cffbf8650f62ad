"""Work requests: one class each, immutable, reusable.

Buffers come first: entries of a memory region (`mr[a:b]`), whole regions, what a registration
cache lends, or, with `inline=True`, whatever has the buffer protocol, which is copied when the work
request is made.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from softhca import _adapter
from softhca.completion.cqe import Cqe
from softhca.verbs.ah import AH
from softhca.verbs.checks import instance, integer, unsigned
from softhca.verbs.enums import SendFlags, WrOpcode
from softhca.verbs.errors import VerbsError
from softhca.verbs.mr import REFERENCES, Registered, Sge, holds_references
from softhca.verbs.remote_memory import RemoteMemory

if TYPE_CHECKING:
    from typing_extensions import Buffer

    BufferLike = Sge | Registered | Buffer | Iterable[Sge | Registered | Buffer]

_Triple = tuple[int, int, int]

_REMOTE = {
    WrOpcode.RDMA_WRITE,
    WrOpcode.RDMA_WRITE_WITH_IMM,
    WrOpcode.RDMA_READ,
    WrOpcode.ATOMIC_CMP_AND_SWP,
    WrOpcode.ATOMIC_FETCH_AND_ADD,
    WrOpcode.MASKED_ATOMIC_CMP_AND_SWP,
    WrOpcode.MASKED_ATOMIC_FETCH_AND_ADD,
    WrOpcode.ATOMIC_WRITE,
}


class AwaitedOptions(TypedDict, total=False):
    """Keywords that every send work request takes, awaited or not; see `SendRequest`."""

    wr_id: int
    fence: bool
    solicited: bool
    inline: bool
    srqn: int


class Options(AwaitedOptions, total=False):
    """Keywords that every send work request takes; see `SendRequest`."""

    signaled: bool | None
    cqe: Cqe | None


class AwaitedSendOptions(AwaitedOptions, total=False):
    """What SENDs take besides, awaited or not; see `SendRequest`."""

    ah: AH
    remote_qpn: int
    remote_qkey: int


class SendOptions(AwaitedSendOptions, Options, total=False):
    """What SENDs take."""


def _entry(buffer: Any, inline: bool) -> tuple[_Triple, object]:
    """An address, length and lkey, and what keeps them valid."""
    sge = buffer[:] if isinstance(buffer, Registered) else buffer
    if isinstance(sge, Sge):
        address = sge.addr
        if inline and sge.mr is not None:
            # Inline bytes are read where they lie, whatever the keys call them.
            if sge.mr._address is None:
                raise VerbsError(
                    errno.EINVAL, "inline", True, "cannot take a region of several pieces"
                )
            address += sge.mr._address - sge.mr.addr
        triple = (
            unsigned("addr", address, 64),
            unsigned("length", sge.length, 32),
            unsigned("lkey", sge.lkey, 32),
        )
        return triple, sge
    if not inline:
        raise TypeError(
            f"a buffer must be an Sge or MR, not {type(buffer).__name__}: register it with "
            "pd.reg_mr(), or copy it with inline=True"
        )
    copied = _copied(buffer)
    return (_adapter.buffer_address(copied), len(copied), 0), copied


def _copied(buffer: Any) -> bytes:
    """The bytes of an object that is not registered.

    Raises:
        VerbsError: EINVAL, if they are references to Python objects, or not to be had.
        TypeError: If it is no such object.
    """
    try:
        with memoryview(buffer) as view:
            rule = REFERENCES if holds_references(view) else ""
            copied = b"" if rule else bytes(view)
    except TypeError:
        raise TypeError(
            "a buffer with inline=True must be an Sge, an MR or bytes-like, not "
            + type(buffer).__name__
        ) from None
    except (BufferError, ValueError) as refusal:
        rule = f"gives no buffer: {refusal}"
    if rule:
        raise VerbsError(errno.EINVAL, "buffers", type(buffer).__name__, rule)
    return copied


def _entries(buffers: tuple[Any, ...], inline: bool) -> tuple[list[_Triple], tuple[object, ...]]:
    if len(buffers) == 1 and not inline:
        (sge,) = buffers
        # A part of a region is right by construction, and what most programs give.
        if type(sge) is Sge and sge.mr is not None:
            return [(sge.addr, sge.length, sge.lkey)], buffers
    flat: list[Any] = []
    for buffer in buffers:
        flat.extend(buffer if isinstance(buffer, list | tuple) else (buffer,))
    pairs = [_entry(buffer, inline) for buffer in flat]
    return [triple for triple, _ in pairs], tuple(kept for _, kept in pairs)


def _checked(cqe: Cqe | None) -> Cqe | None:
    return None if cqe is None else instance("cqe", cqe, Cqe)


# What operations take besides buffers, by the names of their arguments: where it goes, and bits.
_OPERANDS = {
    "imm": ("immediate", 32),
    "rkey": ("invalidate_rkey", 32),
    "add": ("compare_add", 64),
    "boundary": ("compare_mask", 64),
    "compare": ("compare_add", 64),
    "compare_mask": ("compare_mask", 64),
    "swap": ("swap", 64),
    "swap_mask": ("swap_mask", 64),
}

# As integers: arithmetic of IntFlag costs more than the rest of a work request.
_SIGNALED = int(SendFlags.SIGNALED)
_FENCE = int(SendFlags.FENCE)
_SOLICITED = int(SendFlags.SOLICITED)
_INLINE = int(SendFlags.INLINE)
# What is not given is this very object, and needs no check; False, which equals it, does.
_ZERO = 0


class SendRequest(_adapter.SendWr):
    """A work request for a send queue: one class for each kind. Its fields are read-only.

    Args:
        buffers: Parts of regions (`mr[a:b]`), whole regions, or what a registration cache lends.
        remote: The peer's memory, of which it gave away `mr.remote()`.
        wr_id: 64 bits that come back in the completion.
        signaled: Ask for a completion of success, which is the rule where there is a `cqe`;
            errors complete in any case.
        fence: Wait until earlier READs and atomics of the queue pair have completed.
        solicited: Wake a receiver that waits for solicited completions only.
        inline: Copy the bytes when posting, so that the buffers are free at once; whatever has the
            buffer protocol need not be registered then, and is copied now.
        srqn: XRC: number of the peer's shared receive queue.
        cqe: Callback that the completion goes to; it comes back as `wc.cqe`. With
            `signaled=False` it hears of errors alone.
        ah: UD: where to. It may be destroyed as soon as the work request is posted.
        remote_qpn: UD: queue pair there; 0xFFFFFF is multicast.
        remote_qkey: UD: its Q_Key; with the most significant bit set, our queue pair's own.

    Raises:
        VerbsError: EINVAL, for a number that is out of range, an address handle that is closed, or
            a `remote` that is shorter than the buffers.
        TypeError: For a buffer that is not registered, without `inline`.
    """

    __slots__ = ()

    cqe: Cqe | None
    ah: AH | None

    def __init__(
        self,
        opcode: WrOpcode,
        buffers: tuple[Any, ...],
        *,
        wr_id: int = 0,
        signaled: bool | None = None,
        fence: bool = False,
        solicited: bool = False,
        inline: bool = False,
        srqn: int = 0,
        cqe: Cqe | None = None,
        ah: AH | None = None,
        remote_qpn: int = 0,
        remote_qkey: int = 0,
        remote: RemoteMemory | None = None,
        operands: dict[str, int] | None = None,
        fields: dict[str, Any] | None = None,
    ) -> None:
        """Makes a work request of any kind; programs call the class of the kind."""
        fields = dict(fields or {})
        for argument, value in (operands or {}).items():
            field, bits = _OPERANDS[argument]
            fields[field] = unsigned(argument, value, bits)
        triples, kept = _entries(buffers, inline)
        byte_count = sum([length for _, length, _ in triples])
        if opcode in _REMOTE:
            far = instance("remote", remote, RemoteMemory)
            if byte_count > far.length:
                raise VerbsError(
                    errno.EINVAL, "remote", far, f"must hold the {byte_count} bytes of the buffers"
                )
            fields |= {"remote_address": far.addr, "rkey": far.rkey}
        elif remote is not None:
            raise TypeError(f"remote is for WRITEs, READs and atomics, not for {opcode.name}")
        flags = (
            (_SIGNALED if (cqe is not None if signaled is None else signaled) else 0)
            | (_FENCE if fence else 0)
            | (_SOLICITED if solicited else 0)
            | (_INLINE if inline else 0)
        )
        if ah is not None and instance("ah", ah, AH).closed:
            raise VerbsError(errno.EINVAL, "ah", None, "is closed")
        super().__init__(
            opcode,
            triples,
            wr_id=unsigned("wr_id", wr_id, 64) if wr_id is not _ZERO else 0,
            send_flags=flags,
            xrc_srqn=unsigned("srqn", srqn, 24) if srqn is not _ZERO else 0,
            ah=ah.handle if ah is not None else 0,
            remote_qpn=unsigned("remote_qpn", remote_qpn, 24) if remote_qpn is not _ZERO else 0,
            remote_qkey=unsigned("remote_qkey", remote_qkey, 32) if remote_qkey is not _ZERO else 0,
            kept=kept,
            cqe=_checked(cqe),
            ah_object=ah,
            **fields,
        )

    def __repr__(self) -> str:
        flags = SendFlags(self.send_flags)
        shown = f", {flags.name}" if flags else ""
        return f"{type(self).__name__}({self.byte_count} bytes, wr_id={self.wr_id:#x}{shown})"


class Send(SendRequest):
    """SEND: into a receive that the peer posted."""

    __slots__ = ()

    def __init__(self, *buffers: BufferLike, **options: Unpack[SendOptions]) -> None:
        """Takes wr_id, signaled, fence, solicited, inline, srqn, cqe besides: see `SendRequest`.

        UD queue pairs need ah, remote_qpn and remote_qkey.
        """
        super().__init__(WrOpcode.SEND, buffers, **options)


class SendImm(SendRequest):
    """SEND that carries 32 bits into the peer's completion."""

    __slots__ = ()

    def __init__(self, *buffers: BufferLike, imm: int, **options: Unpack[SendOptions]) -> None:
        """Takes wr_id, signaled, fence, solicited, inline, srqn, cqe besides: see `SendRequest`.

        UD queue pairs need ah, remote_qpn and remote_qkey.
        """
        super().__init__(WrOpcode.SEND_WITH_IMM, buffers, operands={"imm": imm}, **options)


class SendInv(SendRequest):
    """SEND that invalidates one of the peer's keys."""

    __slots__ = ()

    def __init__(self, *buffers: BufferLike, rkey: int, **options: Unpack[SendOptions]) -> None:
        """Takes wr_id, signaled, fence, solicited, inline, srqn, cqe besides: see `SendRequest`.

        UD queue pairs need ah, remote_qpn and remote_qkey.
        """
        super().__init__(WrOpcode.SEND_WITH_INV, buffers, operands={"rkey": rkey}, **options)


class Write(SendRequest):
    """RDMA WRITE: from our buffers into the peer's memory, unseen by its program.

    Raises:
        VerbsError: EINVAL, if `remote` is shorter than the buffers.
    """

    __slots__ = ()

    def __init__(
        self, *buffers: BufferLike, remote: RemoteMemory, **options: Unpack[Options]
    ) -> None:
        """Takes wr_id, signaled, fence, solicited, inline, srqn, cqe besides: see `SendRequest`."""
        super().__init__(WrOpcode.RDMA_WRITE, buffers, remote=remote, **options)


class WriteImm(SendRequest):
    """RDMA WRITE that also consumes a receive of the peer, and puts 32 bits into its completion.

    Raises:
        VerbsError: EINVAL, if `remote` is shorter than the buffers.
    """

    __slots__ = ()

    def __init__(
        self, *buffers: BufferLike, remote: RemoteMemory, imm: int, **options: Unpack[Options]
    ) -> None:
        """Takes wr_id, signaled, fence, solicited, inline, srqn, cqe besides: see `SendRequest`."""
        opcode = WrOpcode.RDMA_WRITE_WITH_IMM
        super().__init__(opcode, buffers, remote=remote, operands={"imm": imm}, **options)


class Read(SendRequest):
    """RDMA READ: from the peer's memory into our buffers.

    Raises:
        VerbsError: EINVAL, if `remote` is shorter than the buffers.
    """

    __slots__ = ()

    def __init__(
        self, *buffers: BufferLike, remote: RemoteMemory, **options: Unpack[Options]
    ) -> None:
        """Takes wr_id, signaled, fence, solicited, inline, srqn, cqe besides: see `SendRequest`."""
        super().__init__(WrOpcode.RDMA_READ, buffers, remote=remote, **options)


class CmpSwap(SendRequest):
    """Atomic compare and swap of eight bytes, in the byte order of the machine that holds them.

    What was there before comes into our buffer, which must have eight bytes too: LOC_LEN_ERR
    otherwise (IBTA Vol 1, 9.9.2). `remote` begins at the eight bytes, which must be aligned,
    as the key calls them and in memory.
    """

    __slots__ = ()

    def __init__(
        self,
        *buffers: BufferLike,
        remote: RemoteMemory,
        compare: int,
        swap: int,
        **options: Unpack[Options],
    ) -> None:
        """Takes wr_id, signaled, fence, solicited, inline, srqn, cqe besides: see `SendRequest`."""
        operands = {"compare": compare, "swap": swap}
        opcode = WrOpcode.ATOMIC_CMP_AND_SWP
        super().__init__(opcode, buffers, remote=remote, operands=operands, **options)


class FetchAdd(SendRequest):
    """Atomic addition to eight bytes, modulo 2^64; a negative `add` subtracts.

    What was there before comes into our buffer, which must have eight bytes too: LOC_LEN_ERR
    otherwise (IBTA Vol 1, 9.9.2). `remote` begins at the eight bytes, which must be aligned,
    as the key calls them and in memory.
    """

    __slots__ = ()

    def __init__(
        self,
        *buffers: BufferLike,
        remote: RemoteMemory,
        add: int,
        **options: Unpack[Options],
    ) -> None:
        """Takes wr_id, signaled, fence, solicited, inline, srqn, cqe besides: see `SendRequest`."""
        addend = integer("add", add)
        if -(1 << 63) <= addend < 0:
            addend += 1 << 64
        opcode = WrOpcode.ATOMIC_FETCH_AND_ADD
        super().__init__(opcode, buffers, remote=remote, operands={"add": addend}, **options)


class Recv(_adapter.RecvWr):
    """A receive: where the next SEND of the peer goes, in the order of its buffers.

    On UD queue pairs the first 40 bytes are the global routing header.
    """

    __slots__ = ()

    cqe: Cqe | None

    def __init__(
        self,
        *buffers: Sge | Registered | Iterable[Sge | Registered],
        wr_id: int = 0,
        cqe: Cqe | None = None,
    ) -> None:
        """Makes the work request.

        Args:
            *buffers: Parts of regions (`mr[a:b]`), whole regions, or what a registration cache
                lends. A WRITE with immediate takes a receive without any.
            wr_id: 64 bits that come back in the completion.
            cqe: Callback that the completion goes to; it comes back as `wc.cqe`.

        Raises:
            VerbsError: EINVAL, if `wr_id` is beyond 64 bits.
            TypeError: For a buffer that is not registered.
        """
        triples, kept = _entries(buffers, inline=False)
        super().__init__(triples, wr_id=unsigned("wr_id", wr_id, 64), kept=kept, cqe=_checked(cqe))

    def __repr__(self) -> str:
        return f"Recv({self.byte_count} bytes, wr_id={self.wr_id:#x})"


_adapter.quicken_requests(
    Sge, RemoteMemory, Cqe, Send, SendImm, SendInv, Write, WriteImm, Read, Recv
)
