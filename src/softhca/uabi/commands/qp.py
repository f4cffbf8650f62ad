"""Queue pairs."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Any

from softhca._adapter import MappedRing
from softhca.uabi import rings
from softhca.uabi.commands.addresses import ah_attr_of, fields_of
from softhca.uabi.commands.call import Call, refused
from softhca.uabi.commands.cq import OwnedCQ
from softhca.uabi.commands.pd import OwnedPD
from softhca.uabi.commands.srq import OwnedSRQ
from softhca.uabi.context import Context
from softhca.uabi.layout import Fields
from softhca.uabi.structures import RXE_CREATE_QP_RESP
from softhca.verbs.attributes import QPAttr
from softhca.verbs.enums import Access, MigState, Mtu, QPAttrMask, QPState, QPType
from softhca.verbs.gid import GID
from softhca.verbs.qp import QP

# Those that the provider knows, and we.
_TYPES = {QPType.RC, QPType.UC, QPType.UD}
_ALL_ATTRIBUTES = (1 << 21) - 1
_RATE_LIMIT = 1 << 25
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

    def destroy(self) -> dict[str, int]:
        """EBUSY, while it is in a multicast group."""
        if self.qp._groups:
            raise refused(errno.EBUSY)
        self._stop_ringing()
        self.qp.close()
        return {"events_reported": self.context.forget_events(self.qp)}

    def abandon(self) -> None:
        """Leaves its groups, for the program that does not any more."""
        for group in list(self.qp._groups):
            self.qp.detach_mcast(group)

    def _stop_ringing(self) -> None:
        self.context.known.remove_doorbell(self.context.file.inode, self.handle)


def create_qp(call: Call, request: Fields) -> dict[str, Any]:
    """Creates a queue pair whose queues lie in the program's file."""
    context = call.context
    if request.get("comp_mask") or request.get("create_flags") or request.get("source_qpn"):
        raise refused(errno.EOPNOTSUPP)
    if request.qp_type not in _TYPES:
        raise refused(errno.EOPNOTSUPP, f"type {request.qp_type}")
    objects = context.objects
    pd = objects.get(request.pd_handle, OwnedPD).pd
    srq = objects.get(request.srq_handle, OwnedSRQ).srq if request.is_srq else None
    send_cq = objects.get(request.send_cq_handle, OwnedCQ).cq
    recv_cq = objects.get(request.recv_cq_handle, OwnedCQ).cq
    caps, send_ring, receive_ring = _queues(context, request, has_srq=srq is not None)
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
    context.name_for_events(qp, request.user_handle)
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
    context: Context, request: Fields, *, has_srq: bool
) -> tuple[dict[str, int], MappedRing, MappedRing | None]:
    """Rings for a queue pair, and the sizes that they come to."""
    device = context.device
    rings.demand_within(request.max_send_wr, device.max_qp_wr)
    rings.demand_within(request.max_send_sge, device.max_sge)
    rings.demand_within(request.max_inline_data, device.max_inline_data)
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
    rings.demand_within(request.max_recv_wr, device.max_qp_wr)
    rings.demand_within(request.max_recv_sge, device.max_sge)
    entries = max(request.max_recv_sge, 1)
    receive_ring = rings.receive_ring(context.file.rings, request.max_recv_wr, entries)
    caps |= {"max_recv_wr": rings.room_in(receive_ring), "max_recv_sge": entries}
    return caps, send_ring, receive_ring


def create_qp_by_attributes(call: Call, request: Fields) -> dict[str, Any]:
    """The same in the form of ioctl(2), where what is not there is not given."""
    if "rwq_ind_tbl_handle" in request or "xrcd_handle" in request:
        raise refused(errno.EOPNOTSUPP)
    flags = request.pop("flags", 0)
    sig_all = 1 << 12  # IB_UVERBS_QP_CREATE_SQ_SIG_ALL
    if flags & ~sig_all:
        raise refused(errno.EOPNOTSUPP)
    request["sq_sig_all"] = bool(flags & sig_all)
    request["is_srq"] = "srq_handle" in request
    request["qp_type"] = request.type
    for name in ("pd_handle", "send_cq_handle", "recv_cq_handle"):
        request.setdefault(name, 0xFFFFFFFF)
    return create_qp(call, request)


def destroy_qp(call: Call, request: Fields) -> dict[str, Any]:
    """Destroys it; says how many events of it the program has read."""
    return call.context.objects.destroy(request.qp_handle, OwnedQP)


def modify_qp(call: Call, request: Fields) -> dict[str, Any]:
    """Changes attributes or the state."""
    owned = call.context.objects.get(request.qp_handle, OwnedQP)
    mask = request.attr_mask
    if mask & ~_ALL_ATTRIBUTES:
        raise refused(errno.EOPNOTSUPP)
    owned.qp.modify(_attributes(request, mask), mask)
    return {"response_length": 8}


def _attributes(request: Fields, mask: int) -> QPAttr:
    attr = QPAttr(**{name: request[name] for name in _NUMBERS})
    attr.dest_qp_num = request.dest_qp_num & 0xFFFFFF
    attr.rq_psn &= 0xFFFFFF
    attr.sq_psn &= 0xFFFFFF
    attr.qp_access_flags = Access(request.qp_access_flags)
    attr.en_sqd_async_notify = bool(request.en_sqd_async_notify)
    # Values that are none of an enumeration's are for modify() to refuse, by the mask.
    if mask & QPAttrMask.STATE:
        attr.qp_state = _member(QPState, request.qp_state)
    if mask & QPAttrMask.CUR_STATE:
        attr.cur_qp_state = _member(QPState, request.cur_qp_state)
    if mask & QPAttrMask.PATH_MTU:
        attr.path_mtu = _member(Mtu, request.path_mtu)
    if mask & QPAttrMask.PATH_MIG_STATE:
        attr.path_mig_state = _member(MigState, request.path_mig_state)
    if mask & QPAttrMask.AV:
        attr.ah_attr = ah_attr_of(request.dest, request.dest)
    if mask & QPAttrMask.ALT_PATH:
        attr.alt_ah_attr = ah_attr_of(request.alt_dest, request.alt_dest)
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
    if GID(request.gid) not in owned.qp._groups:
        owned.qp.attach_mcast(request.gid)
    return {}


def detach_mcast(call: Call, request: Fields) -> dict[str, Any]:
    """Leaves it."""
    call.context.objects.get(request.qp_handle, OwnedQP).qp.detach_mcast(request.gid)
    return {}
