"""XRC domains: what an XRC target and the shared receive queues it feeds have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from softhca.verbs.enums import QPType
from softhca.verbs.lifetime import VerbsObject, alive
from softhca.verbs.pd import PD
from softhca.verbs.qp import QP
from softhca.verbs.srq import SRQ

if TYPE_CHECKING:
    from softhca.verbs.cq import CQ
    from softhca.verbs.device import Device


class XRCD(VerbsObject):
    """An XRC domain (struct ibv_xrcd). `device.alloc_xrcd()` makes it."""

    __slots__ = ("device", "handle")

    kind = "xrcd"

    def __init__(self, device: Device) -> None:
        hca = device._hca
        self.handle: int = hca.alloc_xrcd()
        self.device: Device = device
        super().__init__(hca, device)

    def _destroy(self) -> None:
        self._hca.dealloc_xrcd(self.handle)

    def _close_with_children(self) -> None:
        # A shared receive queue cannot be closed while a target receives a message from it, which
        # may never end.
        for child in self._live_children():
            if isinstance(child, QP):
                child._close_with_children()
        super()._close_with_children()

    def create_qp(self) -> QP:
        """Creates an XRC_RECV queue pair, the target that peers' XRC_SEND queue pairs connect to.

        It has no queues of its own: messages go to the SRQ that they name.
        """
        return QP(self.device, QPType.XRC_RECV, xrcd=self)

    def create_srq(
        self, pd: PD, cq: CQ, *, max_wr: int, max_sge: int = 1, srq_limit: int = 0
    ) -> SRQ:
        """Creates an XRC shared receive queue, which peers name by its `srqn`.

        Args:
            pd: Protection domain of the buffers that are posted to it.
            cq: Where its receives complete.
            max_wr: Receives that fit.
            max_sge: Entries of each.
            srq_limit: Fewer receives than this raise SRQ_LIMIT_REACHED, once; 0 never does.
        """
        alive("pd", pd, PD, self._hca)
        return SRQ(pd, max_wr=max_wr, max_sge=max_sge, srq_limit=srq_limit, xrcd=self, cq=cq)

    def __repr__(self) -> str:
        return f"<XRCD {self.handle}>"
