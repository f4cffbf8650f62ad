"""Queue pairs."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import Any

from softhca._adapter import MappedRing
from softhca.uabi import rings
from softhca.uabi.commands.addresses import ah_attr_of, demand_path, fields_of
from softhca.uabi.commands.call import Call, refused
from softhca.uabi.commands.cq import OwnedCQ
from softhca.uabi.commands.pd import OwnedPD
from softhca.uabi.commands.qp_wishes import judge_given, judge_written
from softhca.uabi.commands.srq import OwnedSRQ
from softhca.uabi.context import Context
from softhca.uabi.layout import Fields
from softhca.uabi.structures import RXE_CREATE_QP_RESP
from softhca.verbs.attributes import QPAttr
from softhca.verbs.enums import Access, MigState, Mtu, QPAttrMask, QPState, QPType
from softhca.verbs.gid import GID
from softhca.verbs.qp import QP

_ALL_ATTRIBUTES = (1 << 21) - 1
_RATE_LIMIT = 1 << 25
# Of retry counts, 7 is the most; of rnr_retry it stands for no end.
_MOST_RETRIES = 7
_RNR_TIMER_BITS = 0x1F
# Rights that a queue pair gives; Linux ignores all others.
_RIGHTS = (
    Access.LOCAL_WRITE
    | Access.REMOTE_WRITE
    | Access.REMOTE_READ
    | Access.REMOTE_ATOMIC
    | Access.MW_BIND
    | Access.FLUSH_GLOBAL
)
# Fields of struct ib_uverbs_modify_qp that are fields of QPAttr by the same name.
_NUMBERS = (
    "qkey",
    "rq_psn",
    "sq_psn",
    "pkey_index",
    "alt_pkey_index",
    "max_rd_atomic",
    "max_dest_rd_atomic",
    "min_rnr_timer",
    "port_num",
    "timeout",
    "retry_cnt",
    "rnr_retry",
    "alt_timeout",
)
# And of struct ib_uverbs_query_qp_resp besides.
_QUERIED = (
    *_NUMBERS,
    "qp_state",
    "cur_qp_state",
    "path_mtu",
    "path_mig_state",
    "dest_qp_num",
    "qp_access_flags",
    "sq_draining",
)


@dataclass
class OwnedQP:
    """A queue pair of a program."""

    qp: QP
    send_ring: MappedRing
    receive_ring: MappedRing | None
    context: Context
    sq_sig_all: bool
    caps: dict[str, int]
    handle: int = -1
    # Joined by a GID and a LID, by both of which it is left again.
    groups: set[tuple[GID, int]] = field(default_factory=set)

    def destroy(self) -> dict[str, int]:
        """EBUSY, while it is in a multicast group."""
        if self.groups:
            raise refused(errno.EBUSY, "it is in a multicast group")
        self._stop_ringing()
        self.qp.close()
        return {"events_reported": self.context.forget_events(self.qp)}

    def abandon(self) -> None:
        """Leaves its groups, for the program that does not any more."""
        for gid in {gid for gid, _ in self.groups}:
            self.qp.detach_mcast(gid)
        self.groups.clear()

    def _stop_ringing(self) -> None:
        self.context.known.remove_doorbell(self.context.file.inode, self.handle)


def create_qp(call: Call, request: Fields) -> dict[str, Any]:
    """Creates a queue pair whose queues lie in the program's file."""
    judge_written(call, request)
    return _create(call, request)


def create_qp_by_attributes(call: Call, request: Fields) -> dict[str, Any]:
    """The same in the form of ioctl(2), where what is not there is not given."""
    judge_given(call, request)
    return _create(call, request)


def _create(call: Call, request: Fields) -> dict[str, Any]:
    context = call.context
    objects = context.objects
    pd = objects.get(request.pd_handle, OwnedPD).pd
    srq = objects.get(request.srq_handle, OwnedSRQ).srq if request.is_srq else None
    send_cq = objects.get(request.send_cq_handle, OwnedCQ).cq
    recv_cq = objects.get(request.recv_cq_handle, OwnedCQ).cq
    caps, send_ring, receive_ring = _queues(call, request, has_srq=srq is not None)
    qp = pd.create_qp(
        QPType(request.qp_type),
        send_cq=send_cq,
        recv_cq=recv_cq,
        srq=srq,
        sq_sig_all=bool(request.sq_sig_all),
        **caps,
    )
    call.undo.append(qp.close)
    context.device.hca.map_qp(qp.qpn, send_ring, receive_ring)
    context.name_for_events(qp, request.user_handle, call.events_of(request))
    call.undo.clear()
    owned = OwnedQP(qp, send_ring, receive_ring, context, bool(request.sq_sig_all), caps)
    owned.handle = call.own(owned)
    context.known.add_doorbell(context.file.inode, owned.handle, context.device.hca, qp.qpn)
    mappings = {"rq_mi": rings.mapping_of(receive_ring), "sq_mi": rings.mapping_of(send_ring)}
    return {
        "qp_handle": owned.handle,
        "qpn": qp.qpn,
        **caps,
        "driver": RXE_CREATE_QP_RESP.pack(mappings),
    }


def _queues(
    call: Call, request: Fields, *, has_srq: bool
) -> tuple[dict[str, int], MappedRing, MappedRing | None]:
    """Rings for a queue pair, and the sizes that they come to."""
    context, device = call.context, call.context.device
    rings.demand_within(request.max_send_wr, device.max_qp_wr)
    rings.demand_within(request.max_send_sge, device.max_sge)
    if not has_srq:
        rings.demand_within(request.max_recv_wr, device.max_qp_wr)
        rings.demand_within(request.max_recv_sge, device.max_sge)
    rings.demand_within(request.max_inline_data, device.max_inline_data)
    if call.driver_in_length:
        raise refused(errno.EINVAL, "the driver wants to know nothing")
    payload = rings.send_payload(max(request.max_send_sge, 1), request.max_inline_data)
    send_ring = rings.send_ring(context.file.rings, request.max_send_wr, payload)
    caps = {
        "max_send_wr": rings.room_in(send_ring),
        "max_send_sge": min(payload // 16, device.max_sge),
        "max_inline_data": min(payload, device.max_inline_data),
        "max_recv_wr": 0,
        "max_recv_sge": 0,
    }
    if has_srq:
        return caps, send_ring, None
    entries = max(request.max_recv_sge, 1)
    receive_ring = rings.receive_ring(context.file.rings, request.max_recv_wr, entries)
    caps |= {"max_recv_wr": rings.room_in(receive_ring), "max_recv_sge": entries}
    return caps, send_ring, receive_ring


def destroy_qp(call: Call, request: Fields) -> dict[str, Any]:
    """Destroys it; says how many events of it the program has read."""
    return call.context.objects.destroy(request.qp_handle, OwnedQP)


def modify_qp(call: Call, request: Fields) -> dict[str, Any]:
    """Changes attributes or the state."""
    if request.attr_mask & ~_ALL_ATTRIBUTES:
        raise refused(errno.EOPNOTSUPP, f"attr_mask {request.attr_mask:#x}")
    return _modify(call, request)


def ex_modify_qp(call: Call, request: Fields) -> dict[str, Any]:
    """The same; a rate limit is known of, and nothing that we have."""
    if request.attr_mask & ~(_ALL_ATTRIBUTES | _RATE_LIMIT):
        raise refused(errno.EOPNOTSUPP, f"attr_mask {request.attr_mask:#x}")
    return {**_modify(call, request), "response_length": 8}


def _modify(call: Call, request: Fields) -> dict[str, Any]:
    owned = call.context.objects.get(request.qp_handle, OwnedQP)
    mask = request.attr_mask
    _judge_ports(request, mask)
    attributes = _attributes(call, request, mask)
    if mask & _RATE_LIMIT:
        raise refused(errno.EOPNOTSUPP, "there is no rate limit")
    owned.qp.modify(attributes, mask)
    return {}


def _judge_ports(request: Fields, mask: int) -> None:
    """Refuses ports that there are not, as modify_qp() does before it looks at paths; EINVAL."""
    ports = {1}
    if mask & QPAttrMask.PORT:
        ports.add(request.port_num)
    if mask & QPAttrMask.AV:
        ports.add(request.dest.port_num)
    if mask & QPAttrMask.ALT_PATH:
        ports |= {request.alt_port_num, request.alt_dest.port_num}
    if len(ports) > 1:
        raise refused(errno.EINVAL, f"ports {ports}")


def _attributes(call: Call, request: Fields, mask: int) -> QPAttr:
    attr = QPAttr(**{name: request[name] for name in _NUMBERS})
    attr.dest_qp_num = request.dest_qp_num & 0xFFFFFF
    attr.rq_psn &= 0xFFFFFF
    attr.sq_psn &= 0xFFFFFF
    # Programs give more than the fields of packets have room for. Linux's rxe, and hardware, make
    # of a timer what fits; rxe tries as often as a count says, and beyond 7 of RNR for ever.
    attr.min_rnr_timer &= _RNR_TIMER_BITS
    attr.retry_cnt = min(attr.retry_cnt, _MOST_RETRIES)
    attr.rnr_retry = min(attr.rnr_retry, _MOST_RETRIES)
    attr.qp_access_flags = Access(request.qp_access_flags & _RIGHTS)
    attr.en_sqd_async_notify = bool(request.en_sqd_async_notify)
    # Values that are none of an enumeration's are for modify() to refuse, by the mask.
    if mask & QPAttrMask.STATE:
        attr.qp_state = _member(QPState, request.qp_state)
    if mask & QPAttrMask.CUR_STATE:
        attr.cur_qp_state = _member(QPState, request.cur_qp_state)
    if mask & QPAttrMask.AV:
        attr.ah_attr = ah_attr_of(request.dest, request.dest)
        demand_path(call, attr.ah_attr)
    if mask & QPAttrMask.ALT_PATH:
        attr.alt_ah_attr = ah_attr_of(request.alt_dest, request.alt_dest)
        demand_path(call, attr.alt_ah_attr)
    if mask & QPAttrMask.PATH_MTU:
        attr.path_mtu = _member(Mtu, request.path_mtu)
    if mask & QPAttrMask.PATH_MIG_STATE:
        attr.path_mig_state = _member(MigState, request.path_mig_state)
    return attr


def _member(kind: Any, value: int) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise refused(errno.EINVAL, f"{kind.__name__} {value}") from None


def query_qp(call: Call, request: Fields) -> dict[str, Any]:
    """Every attribute, whatever is asked for."""
    owned = call.context.objects.get(request.qp_handle, OwnedQP)
    attr = owned.qp.query()
    return {
        **{name: int(getattr(attr, name)) for name in _QUERIED},
        **owned.caps,
        "dest": fields_of(attr.ah_attr),
        "alt_dest": fields_of(attr.alt_ah_attr),
        "alt_port_num": attr.alt_ah_attr.port_num if attr.alt_ah_attr is not None else 0,
        "sq_sig_all": owned.sq_sig_all,
    }


def attach_mcast(call: Call, request: Fields) -> dict[str, Any]:
    """Joins a multicast group."""
    owned = call.context.objects.get(request.qp_handle, OwnedQP)
    gid = GID(request.gid)
    if gid not in owned.qp._groups:
        owned.qp.attach_mcast(gid)
    owned.groups.add((gid, request.mlid))
    return {}


def detach_mcast(call: Call, request: Fields) -> dict[str, Any]:
    """Leaves it; EINVAL, if it was not joined so."""
    owned = call.context.objects.get(request.qp_handle, OwnedQP)
    gid = GID(request.gid)
    if (gid, request.mlid) not in owned.groups:
        raise refused(errno.EINVAL, f"{gid} by LID {request.mlid:#x}")
    owned.groups.remove((gid, request.mlid))
    if all(gid != other for other, _ in owned.groups):
        owned.qp.detach_mcast(gid)
    return {}
