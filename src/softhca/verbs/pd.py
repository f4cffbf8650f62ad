"""Protection domains."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from softhca import _adapter
from softhca.verbs.advice import Advice, advise
from softhca.verbs.ah import AH, attributes_from_wc
from softhca.verbs.attributes import AHAttr
from softhca.verbs.checks import unsigned
from softhca.verbs.dm import DM, DeviceMR
from softhca.verbs.enums import MrType, MwType, QPType
from softhca.verbs.errors import VerbsError
from softhca.verbs.fast_mr import FastMR
from softhca.verbs.gid import GIDLike
from softhca.verbs.lifetime import VerbsObject
from softhca.verbs.mr import MR, WRITABLE_ACCESS, register, register_watched
from softhca.verbs.mr_buffer import MRBuffer
from softhca.verbs.mw import MW
from softhca.verbs.qp import QP
from softhca.verbs.srq import SRQ

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from softhca.invalidation.channel import InvalidationChannel
    from softhca.verbs.cq import CQ
    from softhca.verbs.device import Device
    from softhca.verbs.wc import WC


class PD(VerbsObject):
    """A protection domain (struct ibv_pd). `device.alloc_pd()` makes it.

    Queue pairs reach the memory of their own domain only.
    """

    __slots__ = ("device", "handle")

    kind = "pd"

    def __init__(self, device: Device) -> None:
        hca = device._hca
        self.handle: int = hca.alloc_pd()
        self.device: Device = device
        super().__init__(hca, device)

    def _destroy(self) -> None:
        self._hca.dealloc_pd(self.handle)

    def _close_with_children(self) -> None:
        # A region cannot be closed while a window is bound to it, nor a queue pair with one of 2A.
        for child in self._live_children():
            if isinstance(child, MW):
                child.close()
        super()._close_with_children()

    def reg_mr(
        self,
        obj: object = None,
        access: int | None = None,
        *,
        addr: int | None = None,
        length: int | None = None,
        iova: int | None = None,
        invalidation: InvalidationChannel | None = None,
        cookie: int | None = None,
        advice: Advice | int | None = None,
    ) -> MR:
        """Registers memory (ibv_reg_mr).

        Keep the region until all that names it has completed, also what peers do: one that nobody
        holds is deregistered, with a ResourceWarning, and then its keys are unknown. Of the work
        requests under way those alone keep it that have a callback or are awaited.

        Args:
            obj: Anything with the buffer protocol or DLPack on the CPU: bytearray, memoryview,
                mmap, NumPy array, torch tensor, Arrow buffer. It stays exported until `dereg`.
            access: Rights. By default all of LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE and
                REMOTE_ATOMIC for a writable buffer, and REMOTE_READ for a read-only one.
            addr: Instead of `obj`, an address of this process; the caller keeps it mapped.
            length: Bytes, with `addr`. The whole address space is `addr=0, length=2**64 - 1`, with
                ON_DEMAND among the rights: whatever is mapped when it is accessed.
            iova: What the keys call the first byte; by default `addr`, and 0 with ZERO_BASED.
            invalidation: A channel that tells when the mapping behind the region changes. What has
                gone can no longer be accessed through the region. `obj` is then not held.
            cookie: 64 bits that events of the region carry; by default 0.
            advice: What the kernel is told about the memory first (madvise).

        Raises:
            VerbsError: EINVAL, for rights that contradict each other, a range that wraps, or a
                buffer that is not contiguous, not in the CPU's memory, or full of references to
                Python objects, and what its library refuses to export, in its words; EACCES, for a
                read-only buffer with a right to write; ENOMEM, above max_mr regions; EOPNOTSUPP,
                for FLUSH_PERSISTENT, which this memory cannot give. With notices: EOPNOTSUPP, where
                the system has no userfaultfd that can tell; EBUSY, if another one watches the
                memory; EFAULT, if nothing is mapped there; EACCES, for a shared mapping of a file
                that was opened read-only. With advice: EINVAL, for one that would lose content;
                what madvise raises.
            TypeError: If `obj` is no buffer, or not exactly one of `obj` and `addr` is given.
        """
        rights = None if access is None else unsigned("access", access, 32)
        channel, mark = _notices(invalidation, cookie)
        if (obj is None) == (addr is None):
            raise TypeError("reg_mr() takes a buffer, or addr= and length=")
        if addr is None:
            if length is not None or iova is not None:
                raise TypeError("length= and iova= go with addr=, not with a buffer")
            if advice is not None:
                advise(obj, advice)
            return register(self, obj, rights, channel, mark)
        if length is None:
            raise VerbsError(errno.EINVAL, "length", None, "must be given with addr")
        address = unsigned("addr", addr, 64)
        size = unsigned("length", length, 64)
        first = address if iova is None else unsigned("iova", iova, 64)
        if rights is None:
            rights = int(WRITABLE_ACCESS)
        if advice is not None:
            _adapter.advise_memory(address, size, unsigned("advice", advice, 32))
        if channel is not None:
            return register_watched(self, address, size, first, rights, channel, mark)
        return MR(self, None, None, address, size, first, rights)

    def alloc_mr_buffer(
        self, size: int, access: int | None = None, *, huge_pages: bool = True
    ) -> MRBuffer:
        """Allocates memory and registers it.

        Args:
            size: Bytes.
            access: Rights; by default all.
            huge_pages: Take them where the system has any.

        Raises:
            VerbsError: EINVAL, for a size of 0; ENOMEM, above max_mr regions or without memory.
        """
        return MRBuffer(self, size, access, huge_pages=huge_pages)

    def reg_dm_mr(
        self, dm: DM, dm_offset: int = 0, length: int | None = None, access: int | None = None
    ) -> DeviceMR:
        """Registers a part of device memory (ibv_reg_dm_mr).

        Args:
            dm: What `device.alloc_dm()` gave.
            dm_offset: First byte, which the keys call 0.
            length: Bytes; by default what is left.
            access: Rights, ZERO_BASED among them; by default all.

        Raises:
            VerbsError: EINVAL, if the part leaves the device memory, or without ZERO_BASED; ENOMEM,
                above max_mr regions.
        """
        return DeviceMR(self, dm, dm_offset, length, access)

    def alloc_mr(self, mr_type: MrType, max_sg: int) -> FastMR:
        """Allocates a region for fast registration (ib_alloc_mr).

        Args:
            mr_type: MEM_REG: pages without gaps; SG_GAPS: any pieces.
            max_sg: Pages, or pieces, that it can cover.

        Raises:
            VerbsError: EINVAL, for another type, or above max_fast_reg_page_list_len; ENOMEM,
                above max_mr regions.
        """
        return FastMR(self, mr_type, max_sg)

    def alloc_mw(self, mw_type: MwType) -> MW:
        """Allocates a memory window, not bound yet (ibv_alloc_mw).

        Args:
            mw_type: TYPE_1, bound by `qp.bind_mw()` and open to every queue pair of the domain;
                TYPE_2, bound by a `BindMw` work request and open to that queue pair alone.

        Raises:
            VerbsError: EINVAL, for another type; ENOMEM, above max_mw windows.
        """
        return MW(self, mw_type)

    def create_qp(
        self,
        qp_type: QPType,
        *,
        send_cq: CQ | None = None,
        recv_cq: CQ | None = None,
        srq: SRQ | None = None,
        max_send_wr: int = 16,
        max_recv_wr: int = 16,
        max_send_sge: int = 1,
        max_recv_sge: int = 1,
        max_inline_data: int = 0,
        sq_sig_all: bool = False,
    ) -> QP:
        """Creates a queue pair (ibv_create_qp).

        Args:
            qp_type: RC, UC, UD or XRC_SEND; `xrcd.create_qp()` makes XRC_RECV.
            send_cq: Where sends complete.
            recv_cq: Where receives complete; XRC_SEND has none.
            srq: Take receives from there; the queue pair has then no receive queue of its own.
            max_send_wr: Send work requests that fit. `qp.init_attr.cap` says what was given.
            max_recv_wr: Receives that fit.
            max_send_sge: Entries of a send.
            max_recv_sge: Entries of a receive.
            max_inline_data: Bytes that a send may carry inline.
            sq_sig_all: Every send completes, signaled or not.

        Raises:
            VerbsError: EINVAL, for sizes above the device's limits, objects of another device, a
                completion queue that is missing, or another type; ENOMEM, above max_qp queue pairs.
        """
        return QP(
            self.device,
            qp_type,
            pd=self,
            send_cq=send_cq,
            recv_cq=recv_cq,
            srq=srq,
            max_send_wr=max_send_wr,
            max_recv_wr=0 if srq is not None or qp_type == QPType.XRC_SEND else max_recv_wr,
            max_send_sge=max_send_sge,
            max_recv_sge=max_recv_sge,
            max_inline_data=max_inline_data,
            sq_sig_all=sq_sig_all,
        )

    def create_srq(self, *, max_wr: int, max_sge: int = 1, srq_limit: int = 0) -> SRQ:
        """Creates a shared receive queue (ibv_create_srq).

        Args:
            max_wr: Receives that fit.
            max_sge: Entries of each.
            srq_limit: Fewer receives than this raise SRQ_LIMIT_REACHED, once; 0 never does.

        Raises:
            VerbsError: EINVAL, for sizes above the device's limits, or a limit above `max_wr`;
                ENOMEM, above max_srq.
        """
        return SRQ(self, max_wr=max_wr, max_sge=max_sge, srq_limit=srq_limit)

    def create_ah(self, destination: AHAttr | GIDLike) -> AH:
        """Creates an address handle (ibv_create_ah) to a GID, or with all attributes.

        Args:
            destination: An address or a GID, unicast or multicast; or an `AHAttr`.

        Raises:
            VerbsError: EINVAL, for `::` and `0.0.0.0`, an address of another IP version than the
                device's, or attributes out of range; ENOMEM, above max_ah.
        """
        return AH(self, destination)

    def create_ah_from_wc(self, wc: WC, grh: Buffer) -> AH:
        """Creates an address handle to the sender of a datagram (ibv_create_ah_from_wc).

        With `remote_qpn=wc.src_qp` a SEND over it is an answer.

        Args:
            wc: The completion of the receive.
            grh: What it was received into, such as a slice of the registered buffer; the header in
                its first 40 bytes says where the datagram came from.

        Raises:
            VerbsError: EINVAL, if the completion is of no datagram, or `grh` has no header; ENOMEM,
                above max_ah.
        """
        return AH(self, attributes_from_wc(self.device, wc, grh))

    def __repr__(self) -> str:
        return f"<PD {self.handle}>"


def _notices(
    invalidation: InvalidationChannel | None, cookie: int | None
) -> tuple[_adapter.InvalidationChannel | None, int]:
    """The native channel and the cookie of a region that is to have notices.

    Raises:
        VerbsError: EINVAL, for a cookie without a channel or beyond 64 bits, or a closed channel.
        TypeError: If `invalidation` is something else.
    """
    if invalidation is None:
        if cookie is not None:
            raise VerbsError(errno.EINVAL, "cookie", cookie, "needs invalidation=, a channel")
        return None, 0
    if getattr(invalidation, "kind", None) != "invalidation_channel":
        raise TypeError(
            f"invalidation must be InvalidationChannel, not {type(invalidation).__name__}"
        )
    if invalidation.closed:
        raise VerbsError(errno.EINVAL, "invalidation", None, "is closed")
    return invalidation._native, 0 if cookie is None else unsigned("cookie", cookie, 64)
