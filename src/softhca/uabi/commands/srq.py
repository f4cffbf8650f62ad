"""Shared receive queues."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Any

from softhca._adapter import MappedRing
from softhca.uabi import rings
from softhca.uabi.commands.call import Call, refused
from softhca.uabi.commands.cq import OwnedCQ
from softhca.uabi.commands.pd import OwnedPD
from softhca.uabi.context import Context
from softhca.uabi.layout import Fields
from softhca.uabi.structures import RXE_CREATE_SRQ_RESP, RXE_MODIFY_SRQ
from softhca.verbs.enums import SRQAttrMask
from softhca.verbs.srq import SRQ

# enum ib_srq_type; the provider has the first alone.
_BASIC, _XRC, _TAG_MATCHING = range(3)
_WITH_CQ = {_XRC, _TAG_MATCHING}


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
    kind = request.get("srq_type", _BASIC)
    if kind == _XRC:
        raise refused(errno.EINVAL, "there are no XRC domains")
    if kind in _WITH_CQ:
        context.objects.get(request.cq_handle, OwnedCQ)
    pd = context.objects.get(request.pd_handle, OwnedPD).pd
    call.demand_driver_room(RXE_CREATE_SRQ_RESP.size)
    if kind != _BASIC:
        raise refused(errno.EOPNOTSUPP, f"srq_type {kind}")
    if not 0 < request.max_wr <= device.max_srq_wr:
        raise refused(errno.EINVAL, f"max_wr {request.max_wr}")
    rings.demand_within(request.max_sge, device.max_sge)
    ring = rings.receive_ring(context.file.rings, request.max_wr, max(request.max_sge, 1))
    # A limit beyond the room is one that the first receive to be taken falls below.
    limit = min(request.srq_limit, rings.room_in(ring))
    srq = pd.create_srq(
        max_wr=rings.room_in(ring), max_sge=max(request.max_sge, 1), srq_limit=limit
    )
    call.undo.append(srq.close)
    device.hca.map_srq(srq.handle, ring)
    context.name_for_events(srq, request.user_handle, call.events_of(request))
    call.undo.clear()
    return {
        "srq_handle": call.own(OwnedSRQ(srq, ring, context)),
        "max_wr": rings.room_in(ring),
        "max_sge": max(request.max_sge, 1),
        "srqn": srq.handle,
        "driver": RXE_CREATE_SRQ_RESP.pack({"mi": rings.mapping_of(ring), "srq_num": srq.handle}),
    }


def create_srq_by_attributes(call: Call, request: Fields) -> dict[str, Any]:
    """The same in the form of ioctl(2), where what a type needs may not be given."""
    kind = request.srq_type
    if kind in _WITH_CQ and "cq_handle" not in request:
        raise refused(errno.ENOENT, "no CQ")
    if kind == _XRC and "xrcd_handle" not in request:
        raise refused(errno.ENOENT, "no XRC domain")
    if kind == _TAG_MATCHING and "max_num_tags" not in request:
        raise refused(errno.ENOENT, "no number of tags")
    if kind > _TAG_MATCHING:
        raise refused(errno.EINVAL, f"srq_type {kind}")
    return create_srq(call, request)


def modify_srq(call: Call, request: Fields) -> dict[str, Any]:
    """Arms the limit. Resizing is not offered."""
    owned = call.context.objects.get(request.srq_handle, OwnedSRQ)
    call.read_driver(RXE_MODIFY_SRQ.size)
    if request.attr_mask & SRQAttrMask.MAX_WR:
        limit = owned.srq.query().srq_limit
        if not 0 < request.max_wr <= call.context.device.max_srq_wr or request.max_wr < limit:
            raise refused(errno.EINVAL, f"max_wr {request.max_wr}")
    if request.attr_mask & SRQAttrMask.LIMIT:
        rings.demand_within(request.srq_limit, rings.room_in(owned.ring))
    if request.attr_mask & SRQAttrMask.MAX_WR:
        raise refused(errno.EOPNOTSUPP, "shared receive queues keep their size")
    if request.attr_mask & SRQAttrMask.LIMIT:
        owned.srq._arm(request.srq_limit)
    return {}


def query_srq(call: Call, request: Fields) -> dict[str, Any]:
    """Its sizes, and the limit that is armed."""
    attr = call.context.objects.get(request.srq_handle, OwnedSRQ).srq.query()
    return {"max_wr": attr.max_wr, "max_sge": attr.max_sge, "srq_limit": attr.srq_limit}


def destroy_srq(call: Call, request: Fields) -> dict[str, Any]:
    """Destroys it; says how many events of it the program has read."""
    return call.context.objects.destroy(request.srq_handle, OwnedSRQ)
