"""Shared receive queues."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING

from softhca import _adapter
from softhca.completion.cqe import Cqe, tell_forgotten
from softhca.verbs.acknowledgement import Acknowledgement
from softhca.verbs.attributes import SRQAttr
from softhca.verbs.checks import unsigned
from softhca.verbs.cq import CQ
from softhca.verbs.enums import SRQAttrMask
from softhca.verbs.errors import VerbsError
from softhca.verbs.lifetime import VerbsObject, alive
from softhca.verbs.records import receives_of
from softhca.verbs.wr import Recv

if TYPE_CHECKING:
    from softhca.verbs.device import Device
    from softhca.verbs.pd import PD
    from softhca.verbs.records import Records, WrIds
    from softhca.verbs.xrcd import XRCD


class SRQ(VerbsObject):
    """A shared receive queue (struct ibv_srq). `pd.create_srq()` makes it.

    Attributes:
        srqn: Number by which XRC peers name it; 0 for one that is not of XRC.
    """

    __slots__ = ("_async_acks", "_max_wr", "_vanished", "device", "handle", "srqn")

    kind = "srq"

    def __init__(
        self,
        pd: PD,
        *,
        max_wr: int,
        max_sge: int = 1,
        srq_limit: int = 0,
        xrcd: XRCD | None = None,
        cq: CQ | None = None,
    ) -> None:
        hca = pd._hca
        attr = SRQAttr(max_wr=max_wr, max_sge=max_sge, srq_limit=srq_limit).to_native()
        parents: list[VerbsObject] = [pd]
        if xrcd is not None:
            parents.append(xrcd)
        if cq is not None:
            parents.append(alive("cq", cq, CQ, hca))
        self._async_acks = Acknowledgement()
        self._vanished: list[Cqe] = []
        self._max_wr = max_wr
        self.handle: int = hca.create_srq(
            pd.handle, attr, xrcd.handle if xrcd else 0, cq.handle if cq else 0
        )
        self.srqn: int = hca.srq_number(self.handle) if xrcd else 0
        self.device: Device = pd.device
        super().__init__(hca, *parents)
        pd.device._srqs[self.handle] = self

    def _await_acknowledgement(self) -> None:
        self._async_acks.wait_until_none(self.kind, self.device._world)

    def _take_events_again(self) -> None:
        self._async_acks.take_again()

    def _destroy(self) -> None:
        self._vanished = self._hca.destroy_srq(self.handle)
        self.device._srqs.pop(self.handle, None)

    def _aftermath(self) -> None:
        vanished, self._vanished = self._vanished, []
        tell_forgotten(vanished)

    def post_recv(self, wrs: Recv | Sequence[Recv]) -> None:
        """Posts a receive, or several in order (ibv_post_srq_recv).

        Args:
            wrs: One, or a sequence of them.

        Raises:
            VerbsError: ENOMEM, if the queue is full; EINVAL, if a receive has too many entries.
                `bad_wr` is the one that was refused; those before it stay posted.
        """
        self._hca.post_srq_recv(self.handle, wrs)

    def post_recv_many(
        self, wrs: Recv | Sequence[Recv] | Records, wr_ids: WrIds | None = None
    ) -> None:
        """Posts many receives in order, without an object for each; as `qp.post_recv_many`."""
        self._hca.post_srq_recv_many(self.handle, receives_of(wrs), wr_ids)

    def modify(self, *, srq_limit: int | None = None, max_wr: int | None = None) -> None:
        """Arms the limit event, or resizes.

        Args:
            srq_limit: Fewer receives than this raise SRQ_LIMIT_REACHED, once; 0 disarms. Below
                max_wr.
            max_wr: Refused: resizing is not offered.

        Raises:
            VerbsError: EINVAL.
        """
        mask = SRQAttrMask(0)
        attr = SRQAttr(max_wr=0).to_native()
        if srq_limit is not None:
            mask |= SRQAttrMask.LIMIT
            attr.srq_limit = unsigned("srq_limit", srq_limit, 32)
            if srq_limit == self._max_wr:
                rule = f"must be below max_wr, {self._max_wr}"
                raise VerbsError(errno.EINVAL, "srq_limit", srq_limit, rule)
        if max_wr is not None:
            mask |= SRQAttrMask.MAX_WR
            attr.max_wr = unsigned("max_wr", max_wr, 32)
        self._hca.modify_srq(self.handle, attr, mask)

    def _arm(self, srq_limit: int) -> None:
        """The same for programs, which may ask for whatever rxe takes: max_wr too."""
        attr = SRQAttr(max_wr=0, srq_limit=srq_limit).to_native()
        self._hca.modify_srq(self.handle, attr, SRQAttrMask.LIMIT)

    def query(self) -> SRQAttr:
        """Returns its sizes and the armed limit, 0 if none is armed."""
        return SRQAttr.from_native(self._hca.query_srq(self.handle))

    def __repr__(self) -> str:
        return f"<SRQ {self.handle}>"


_adapter.quicken(SRQ)
