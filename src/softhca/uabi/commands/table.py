"""Every command that there is, in both of its forms."""

from __future__ import annotations

import errno
from typing import Any

from softhca.uabi import structures as s
from softhca.uabi.commands import addresses, channels, cq, device, mr, pd, posting, qp, srq
from softhca.uabi.commands.call import Call, refused
from softhca.uabi.commands.forms import (
    Command,
    Const,
    Created,
    Descriptor,
    Flags,
    Handle,
    In,
    Method,
    Octets,
    Out,
    Write,
)
from softhca.uabi.commands.ioctl_form import MethodTable
from softhca.uabi.commands.write_form import EXTENDED, WriteTable
from softhca.uabi.layout import Fields

# Objects of ioctl(2): enum uverbs_default_objects.
DEVICE, PD, COMP_CHANNEL, CQ, QP, SRQ, AH, MR, MW = range(9)
XRCD = 10
ASYNC_EVENT = 16

_KINDS: dict[int, type[Any] | None] = {
    DEVICE: None,
    COMP_CHANNEL: None,
    ASYNC_EVENT: None,
    PD: pd.OwnedPD,
    CQ: cq.OwnedCQ,
    QP: qp.OwnedQP,
    SRQ: srq.OwnedSRQ,
    AH: addresses.OwnedAH,
    MR: mr.OwnedMR,
    MW: mr.OwnedMW,
}


def info_handles(call: Call, request: Fields) -> dict[str, Any]:
    """The handles of all objects of a kind, as far as there is room for them."""
    room = request.get("room_of_handles", 0)
    if not room or room % 4:
        raise refused(errno.EINVAL, f"room for handles: {room} bytes")
    if request.object_id not in _KINDS:
        raise refused(errno.ENOENT, f"kind {request.object_id}")
    kind = _KINDS[request.object_id]
    handles = [] if kind is None else call.context.objects.handles_of(kind)[: room // 4]
    answer = {"handles": b"".join(handle.to_bytes(4, "little") for handle in handles)}
    if "room_of_total" not in request:
        call.respond(answer)
        raise refused(errno.ENOENT, "no room for their number")
    return {**answer, "total": len(handles)}


COMMANDS = (
    Command(
        device.get_context_and_events, (Write(0, s.GET_CONTEXT, s.GET_CONTEXT_RESP, driver=True),)
    ),
    Command(
        device.get_context,
        method=Method(
            DEVICE,
            3,
            (
                Out(0, "num_comp_vectors", optional=True),
                Out(1, "core_support", bytes=8, optional=True),
            ),
            driver=True,
        ),
    ),
    Command(
        device.query_context,
        method=Method(
            DEVICE,
            4,
            (
                Out(0, "num_comp_vectors", optional=True),
                Out(1, "core_support", bytes=8, optional=True),
            ),
        ),
    ),
    Command(device.alloc_async_events, method=Method(ASYNC_EVENT, 0, (Created(0, "fd"),))),
    Command(device.query_device, (Write(1, s.QUERY_DEVICE, s.QUERY_DEVICE_RESP),)),
    Command(
        device.ex_query_device,
        (
            Write(
                1,
                s.EX_QUERY_DEVICE,
                s.EX_QUERY_DEVICE_RESP,
                extended=True,
                required=4,
                promised=0,
            ),
        ),
    ),
    Command(device.query_port, (Write(2, s.QUERY_PORT, s.QUERY_PORT_RESP),)),
    Command(
        info_handles,
        method=Method(
            DEVICE,
            1,
            (
                Const(0, "object_id", most=0xFFFF),
                Out(1, "total", optional=True),
                Out(2, "handles", bytes=None, least=4, optional=True),
            ),
        ),
    ),
    Command(
        device.query_port_and_more,
        method=Method(
            DEVICE,
            2,
            (Const(0, "port_num", most=0xFF), Out(1, "legacy", s.QUERY_PORT_RESP_EX)),
        ),
    ),
    Command(
        device.query_gid_table,
        method=Method(
            DEVICE,
            5,
            (
                Const(0, "entry_size", most=(1 << 63) - 1),
                Flags(1, "flags"),
                Out(2, "entries", bytes=None),
                Out(3, "count", bytes=8),
            ),
        ),
    ),
    Command(
        device.query_gid_entry,
        method=Method(
            DEVICE,
            6,
            (
                Const(0, "port_num"),
                Const(1, "gid_index"),
                Flags(2, "flags", optional=False),
                Out(3, "entry", s.GID_ENTRY),
            ),
        ),
    ),
    Command(pd.alloc_pd, (Write(3, s.ALLOC_PD, s.ALLOC_PD_RESP, driver=True),)),
    Command(
        pd.dealloc_pd,
        (Write(4, s.DEALLOC_PD),),
        Method(PD, 0, (Handle(0, "pd_handle", pd.OwnedPD),)),
    ),
    Command(
        channels.create_comp_channel,
        (Write(17, s.CREATE_COMP_CHANNEL, s.CREATE_COMP_CHANNEL_RESP),),
    ),
    Command(mr.reg_mr, (Write(9, s.REG_MR, s.REG_MR_RESP, driver=True),)),
    Command(
        mr.dereg_mr,
        (Write(13, s.DEREG_MR),),
        Method(MR, 1, (Handle(0, "mr_handle", mr.OwnedMR),)),
    ),
    Command(
        mr.query_mr,
        method=Method(
            MR,
            3,
            (
                Handle(0, "mr_handle", mr.OwnedMR),
                Out(1, "lkey"),
                Out(2, "rkey"),
                Out(3, "length", bytes=8),
                Out(4, "iova", bytes=8, optional=True),
            ),
        ),
    ),
    Command(
        mr.no_such_region,
        method=Method(
            MR,
            2,  # UVERBS_METHOD_ADVISE_MR
            (
                Handle(0, "pd_handle", pd.OwnedPD),
                Const(1, "advice"),
                Flags(2, "flags", optional=False),
                Octets(3, "sg_list", least=16, optional=False, is_copied=True),
            ),
        ),
    ),
    Command(
        mr.no_such_region,
        method=Method(
            MR,
            4,  # UVERBS_METHOD_REG_DMABUF_MR
            (
                Created(0, "mr_handle"),
                Handle(1, "pd_handle", pd.OwnedPD),
                In(2, "offset", bytes=8),
                In(3, "length", bytes=8),
                In(4, "iova", bytes=8),
                In(5, "fd"),
                Flags(6, "access_flags"),
                Out(7, "lkey"),
                Out(8, "rkey"),
            ),
        ),
    ),
    Command(mr.alloc_mw, (Write(14, s.ALLOC_MW, s.ALLOC_MW_RESP, driver=True),)),
    Command(
        mr.dealloc_mw,
        (Write(16, s.DEALLOC_MW),),
        Method(MW, 0, (Handle(0, "mw_handle", mr.OwnedMW),)),
    ),
    Command(
        cq.create_cq,
        (
            Write(18, s.CREATE_CQ, s.CREATE_CQ_RESP, driver=True),
            Write(18, s.EX_CREATE_CQ, s.EX_CREATE_CQ_RESP, extended=True, promised=0),
        ),
    ),
    Command(
        cq.create_cq_by_attributes,
        method=Method(
            CQ,
            0,
            (
                Created(0, "cq_handle"),
                In(1, "cqe"),
                In(2, "user_handle", bytes=8),
                Descriptor(3, "comp_channel", is_channel=True),
                In(4, "comp_vector"),
                Flags(5, "flags"),
                Out(6, "cqe"),
                Descriptor(7, "event_fd"),
            ),
            driver=True,
        ),
    ),
    Command(cq.resize_cq, (Write(19, s.RESIZE_CQ, s.RESIZE_CQ_RESP, driver=True),)),
    Command(cq.modify_cq, (Write(57, s.EX_MODIFY_CQ, extended=True),)),
    Command(cq.req_notify_cq, (Write(23, s.REQ_NOTIFY_CQ),)),
    Command(
        cq.destroy_cq,
        (Write(20, s.DESTROY_CQ, s.DESTROY_CQ_RESP),),
        Method(
            CQ,
            1,
            (Handle(0, "cq_handle", cq.OwnedCQ), Out(1, "told", s.DESTROY_CQ_RESP, exact=True)),
        ),
    ),
    Command(
        srq.create_srq,
        (
            Write(32, s.CREATE_SRQ, s.CREATE_SRQ_RESP, driver=True),
            Write(39, s.CREATE_XSRQ, s.CREATE_SRQ_RESP, driver=True),
        ),
    ),
    Command(
        srq.create_srq_by_attributes,
        method=Method(
            SRQ,
            0,
            (
                Created(0, "srq_handle"),
                Handle(1, "pd_handle", pd.OwnedPD),
                Handle(2, "xrcd_handle", None, optional=True),
                Handle(3, "cq_handle", cq.OwnedCQ, optional=True),
                In(4, "user_handle", bytes=8),
                In(5, "max_wr"),
                In(6, "max_sge"),
                In(7, "srq_limit"),
                In(8, "max_num_tags", optional=True),
                Const(9, "srq_type"),
                Descriptor(10, "event_fd"),
                Out(11, "max_wr"),
                Out(12, "max_sge"),
                Out(13, "srqn", optional=True),
            ),
            driver=True,
        ),
    ),
    Command(srq.modify_srq, (Write(33, s.MODIFY_SRQ, driver=True),)),
    Command(srq.query_srq, (Write(34, s.QUERY_SRQ, s.QUERY_SRQ_RESP),)),
    Command(
        srq.destroy_srq,
        (Write(35, s.DESTROY_SRQ, s.DESTROY_SRQ_RESP),),
        Method(
            SRQ,
            1,
            (Handle(0, "srq_handle", srq.OwnedSRQ), Out(1, "told", s.DESTROY_SRQ_RESP, exact=True)),
        ),
    ),
    Command(addresses.create_ah, (Write(5, s.CREATE_AH, s.CREATE_AH_RESP, driver=True),)),
    Command(
        addresses.destroy_ah,
        (Write(8, s.DESTROY_AH),),
        Method(AH, 0, (Handle(0, "ah_handle", addresses.OwnedAH),)),
    ),
    Command(
        qp.create_qp,
        (
            Write(24, s.CREATE_QP, s.CREATE_QP_RESP, driver=True),
            Write(24, s.EX_CREATE_QP, s.EX_CREATE_QP_RESP, extended=True, required=52, promised=0),
        ),
    ),
    Command(
        qp.create_qp_by_attributes,
        method=Method(
            QP,
            0,
            (
                Created(0, "qp_handle"),
                Handle(1, "xrcd_handle", None, optional=True),
                Handle(2, "pd_handle", pd.OwnedPD, optional=True),
                Handle(3, "srq_handle", srq.OwnedSRQ, optional=True),
                Handle(4, "send_cq_handle", cq.OwnedCQ, optional=True),
                Handle(5, "recv_cq_handle", cq.OwnedCQ, optional=True),
                Handle(6, "rwq_ind_tbl_handle", None, optional=True),
                In(7, "user_handle", bytes=8),
                In(8, "cap", s.QP_CAP),
                Const(9, "type"),
                Flags(10, "flags"),
                In(11, "source_qpn", optional=True),
                Descriptor(12, "event_fd"),
                Out(13, "cap", s.QP_CAP),
                Out(14, "qpn"),
            ),
            driver=True,
        ),
    ),
    Command(
        qp.modify_qp,
        (Write(26, s.MODIFY_QP),),
    ),
    Command(
        qp.ex_modify_qp,
        (Write(26, s.EX_MODIFY_QP, s.EX_MODIFY_QP_RESP, extended=True, required=112),),
    ),
    Command(qp.query_qp, (Write(25, s.QUERY_QP, s.QUERY_QP_RESP),)),
    Command(
        qp.destroy_qp,
        (Write(27, s.DESTROY_QP, s.DESTROY_QP_RESP),),
        Method(
            QP,
            1,
            (Handle(0, "qp_handle", qp.OwnedQP), Out(1, "told", s.DESTROY_QP_RESP, exact=True)),
        ),
    ),
    Command(posting.post_send, (Write(28, s.POST_SEND, s.POST_SEND_RESP, has_rest=True),)),
    Command(qp.attach_mcast, (Write(30, s.MCAST),)),
    Command(qp.detach_mcast, (Write(31, s.MCAST),)),
)

WRITES: WriteTable = {
    form.number | (EXTENDED if form.extended else 0): (command.handler, form)
    for command in COMMANDS
    for form in command.writes
}

METHODS: MethodTable = {
    (command.method.object_id, command.method.method_id): (command.handler, command.method)
    for command in COMMANDS
    if command.method is not None
}

# What a program may ask for before it has its context.
BEFORE_THE_CONTEXT = frozenset({device.get_context_and_events, device.get_context})
