"""Completion queues."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Any

from softhca._adapter import MappedRing
from softhca.uabi import rings
from softhca.uabi.channels import Channel
from softhca.uabi.commands.call import Call, demand_flags, refused
from softhca.uabi.context import Context
from softhca.uabi.layout import Fields
from softhca.uabi.structures import RXE_CREATE_CQ_RESP, RXE_RESIZE_CQ_RESP
from softhca.verbs.cq import CQ
from softhca.verbs.enums import NotifyFlags

_NO_CHANNEL = -1
_MODERATION = 1  # Of attr_mask: IB_CQ_MODERATE.
# IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION and _IGNORE_OVERRUN.
_FLAGS = 3


@dataclass
class OwnedCQ:
    """A completion queue of a program.

    Attributes:
        sink: Number of what writes its events to the channel; 0 without a channel.
    """

    cq: CQ
    ring: MappedRing
    context: Context
    user_handle: int
    channel: Channel | None = None
    sink: int = 0
    handle: int = -1

    def destroy(self) -> dict[str, int]:
        """EBUSY, while queue pairs complete to it."""
        self.cq.close()
        self.context.known.remove_arm(self.context.file.inode, self.handle)
        told = {"async_events_reported": self.context.forget_events(self.cq)}
        if self.channel is not None:
            self.context.device.hca.remove_sink(self.sink)
            told["comp_events_reported"] = self.channel.forget(self.user_handle)
        return told


def create_cq(call: Call, request: Fields) -> dict[str, Any]:
    """Creates a queue in the program's file."""
    context = call.context
    device = context.device
    if request.get("comp_mask") or request.get("zero"):
        raise refused(errno.EINVAL, "comp_mask or a reserved field")
    if request.comp_vector >= device.adapter.num_comp_vectors:
        raise refused(errno.EINVAL, f"vector {request.comp_vector}")
    channel = None
    number = request.get("comp_channel", _NO_CHANNEL)
    if number >= 0:
        channel = context.channel_of(call.asked.task, number)
        if channel is None:
            raise refused(errno.EBADF, f"comp_channel {number} is none")
    call.demand_driver_room(RXE_CREATE_CQ_RESP.size)
    if request.get("flags"):
        raise refused(errno.EOPNOTSUPP, f"flags {request.flags:#x}")
    _demand_room(call, request.cqe)
    cq = device.adapter.create_cq(request.cqe, comp_vector=request.comp_vector, timestamps=False)
    call.undo.append(cq.close)
    ring = rings.completion_ring(context.file.rings, request.cqe)
    cq.resize(rings.room_in(ring))
    device.hca.map_cq(cq.handle, ring)
    owned = OwnedCQ(cq, ring, context, request.user_handle, channel)
    if channel is not None:
        owned.sink = device.hca.create_pipe_sink(channel.events, request.user_handle)
        device.hca.attach_cq(cq.handle, owned.sink)
    context.name_for_events(cq, request.user_handle, call.events_of(request))
    call.undo.clear()
    owned.handle = call.own(owned)
    context.known.add_arm(context.file.inode, owned.handle, device.hca, cq.handle)
    return {
        "cq_handle": owned.handle,
        "cqe": rings.room_in(ring),
        "driver": RXE_CREATE_CQ_RESP.pack({"mi": rings.mapping_of(ring)}),
    }


def create_cq_by_attributes(call: Call, request: Fields) -> dict[str, Any]:
    """The same in the form of ioctl(2), where flags that nobody knows are wrong."""
    demand_flags(request.get("flags", 0), _FLAGS)
    return create_cq(call, request)


def _demand_room(call: Call, completions: int) -> None:
    """Refuses a size that a queue cannot have; EINVAL."""
    if not 0 < completions <= call.context.device.max_cqe:
        raise refused(errno.EINVAL, f"{completions} completions")


def resize_cq(call: Call, request: Fields) -> dict[str, Any]:
    """Moves what waits to another ring; EINVAL, if it is too small for that."""
    owned = call.context.objects.get(request.cq_handle, OwnedCQ)
    call.demand_driver_room(RXE_RESIZE_CQ_RESP.size)
    _demand_room(call, request.cqe)
    ring = rings.completion_ring(call.context.file.rings, request.cqe)
    room = rings.room_in(ring)
    if room > owned.cq.cqe:
        owned.cq.resize(room)
    call.context.device.hca.map_cq(owned.cq.handle, ring)
    if room < owned.cq.cqe:
        owned.cq.resize(room)
    owned.ring = ring
    return {"cqe": room, "driver": RXE_RESIZE_CQ_RESP.pack({"mi": rings.mapping_of(ring)})}


def modify_cq(call: Call, request: Fields) -> dict[str, Any]:
    """Moderates events, which Linux's rxe cannot."""
    if not request.attr_mask or request.zero:
        raise refused(errno.EINVAL, f"attr_mask {request.attr_mask:#x}, or a reserved field")
    if request.attr_mask > _MODERATION:
        raise refused(errno.EOPNOTSUPP, f"attr_mask {request.attr_mask:#x}")
    owned = call.context.objects.get(request.cq_handle, OwnedCQ)
    owned.cq.modify(cq_count=request.cq_count, cq_period=request.cq_period)
    return {}


def req_notify_cq(call: Call, request: Fields) -> dict[str, Any]:
    """Arms it for one event. What is right in all details is done before it comes here."""
    owned = call.context.objects.get(request.cq_handle, OwnedCQ)
    flags = NotifyFlags.SOLICITED if request.solicited_only else NotifyFlags.NEXT_COMP
    call.context.device.hca.req_notify_cq(owned.cq.handle, flags)
    return {}


def destroy_cq(call: Call, request: Fields) -> dict[str, Any]:
    """Destroys it; says how many of its events the program has read."""
    return call.context.objects.destroy(request.cq_handle, OwnedCQ)
