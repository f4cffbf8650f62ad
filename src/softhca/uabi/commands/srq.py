"""Shared receive queues."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Any

from softhca._adapter import MappedRing
from softhca.uabi import rings
from softhca.uabi.commands.call import Call, refused
from softhca.uabi.commands.pd import OwnedPD
from softhca.uabi.context import Context
from softhca.uabi.layout import Fields
from softhca.uabi.structures import RXE_CREATE_SRQ_RESP
from softhca.verbs.enums import SRQAttrMask
from softhca.verbs.srq import SRQ

_BASIC = 0  # IB_SRQT_BASIC; the provider has no other.


@dataclass
class OwnedSRQ:
    """A shared receive queue of a program."""

    srq: SRQ
    ring: MappedRing
    context: Context

    def destroy(self) -> dict[str, int]:
        """EBUSY, while queue pairs receive from it."""
        self.srq.close()
        return {"events_reported": self.context.forget_events(self.srq)}


def create_srq(call: Call, request: Fields) -> dict[str, Any]:
    """Creates a queue in the program's file."""
    context = call.context
    device = context.device
    if request.get("srq_type", _BASIC) != _BASIC:
        raise refused(errno.EOPNOTSUPP)
    pd = context.objects.get(request.pd_handle, OwnedPD).pd
    if not 0 < request.max_wr <= device.max_srq_wr:
        raise refused(errno.EINVAL)
    rings.demand_within(request.srq_limit, request.max_wr)
    rings.demand_within(request.max_sge, device.max_sge)
    ring = rings.receive_ring(context.file.rings, request.max_wr, max(request.max_sge, 1))
    srq = pd.create_srq(
        max_wr=rings.room_in(ring), max_sge=max(request.max_sge, 1), srq_limit=request.srq_limit
    )
    call.undo.append(srq.close)
    device.hca.map_srq(srq.handle, ring)
    context.name_for_events(srq, request.user_handle)
    call.undo.clear()
    return {
        "srq_handle": call.own(OwnedSRQ(srq, ring, context)),
        "max_wr": rings.room_in(ring),
        "max_sge": max(request.max_sge, 1),
        "srqn": srq.handle,
        "driver": RXE_CREATE_SRQ_RESP.pack({"mi": rings.mapping_of(ring), "srq_num": srq.handle}),
    }


def modify_srq(call: Call, request: Fields) -> dict[str, Any]:
    """Arms the limit. Resizing is not offered."""
    owned = call.context.objects.get(request.srq_handle, OwnedSRQ)
    if request.attr_mask & ~(SRQAttrMask.LIMIT | SRQAttrMask.MAX_WR):
        raise refused(errno.EINVAL)
    if request.attr_mask & SRQAttrMask.MAX_WR:
        raise refused(errno.EOPNOTSUPP)
    if request.attr_mask & SRQAttrMask.LIMIT:
        owned.srq.modify(srq_limit=request.srq_limit)
    return {}


def query_srq(call: Call, request: Fields) -> dict[str, Any]:
    """Its sizes, and the limit that is armed."""
    attr = call.context.objects.get(request.srq_handle, OwnedSRQ).srq.query()
    return {"max_wr": attr.max_wr, "max_sge": attr.max_sge, "srq_limit": attr.srq_limit}


def destroy_srq(call: Call, request: Fields) -> dict[str, Any]:
    """Destroys it; says how many events of it the program has read."""
    return call.context.objects.destroy(request.srq_handle, OwnedSRQ)
