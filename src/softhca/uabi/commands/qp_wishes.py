"""What may be asked for when a queue pair is made, judged in the kernel's order.

First what the core knows of, then what Linux's rxe has: a type that it lacks is EOPNOTSUPP, if all
before is well.
"""

from __future__ import annotations

import errno

from softhca.uabi.commands.call import Call, demand_flags, refused
from softhca.uabi.commands.cq import OwnedCQ
from softhca.uabi.commands.pd import OwnedPD
from softhca.uabi.commands.srq import OwnedSRQ
from softhca.uabi.layout import Fields
from softhca.uabi.structures import RXE_CREATE_QP_RESP
from softhca.verbs.enums import QPType

# Those that the provider knows, and we; and those that there are besides.
_OURS = {QPType.RC, QPType.UC, QPType.UD}
_RAW_PACKET, _XRC_INI, _XRC_TGT, _DRIVER = 8, 9, 10, 0xFF
_TYPES = {*_OURS, _RAW_PACKET, _XRC_INI, _XRC_TGT, _DRIVER}
# IB_QP_CREATE_* and IB_UVERBS_QP_CREATE_*.
_BLOCK_LOOPBACK, _SCATTER_FCS, _CVLAN_STRIPPING = 1 << 1, 1 << 8, 1 << 9
_SOURCE_QPN, _END_PADDING, _SQ_SIG_ALL = 1 << 10, 1 << 11, 1 << 12
_CROSS_CHANNEL, _MANAGED_SEND, _MANAGED_RECV = 1 << 2, 1 << 3, 1 << 4
_FLAGS = _BLOCK_LOOPBACK | _SCATTER_FCS | _CVLAN_STRIPPING | _END_PADDING
_FLAGS_OF_WRITE = _FLAGS | _SOURCE_QPN | _CROSS_CHANNEL | _MANAGED_SEND | _MANAGED_RECV
_INDIRECTION = 1  # Of comp_mask: IB_UVERBS_CREATE_QP_MASK_IND_TABLE.


def judge_written(call: Call, request: Fields) -> None:
    """Judges a request of write(2).

    Raises:
        OSError: EINVAL, ENOENT, EOPNOTSUPP.
    """
    if request.get("comp_mask", 0) & ~_INDIRECTION or request.get("zero"):
        raise refused(errno.EINVAL, "comp_mask, or a field that is none")
    if request.qp_type not in _TYPES:
        raise refused(errno.EINVAL, f"qp_type {request.qp_type}")
    if request.get("comp_mask") or request.qp_type == _XRC_TGT:
        raise refused(errno.EINVAL, "there are no indirection tables and no XRC domains")
    objects = call.context.objects
    if request.qp_type != _XRC_INI:
        if request.is_srq:
            objects.get(request.srq_handle, OwnedSRQ)
        objects.get(request.recv_cq_handle, OwnedCQ)
    objects.get(request.send_cq_handle, OwnedCQ)
    objects.get(request.pd_handle, OwnedPD)
    flags = request.get("create_flags", 0)
    demand_flags(flags, _FLAGS_OF_WRITE)
    _judge_for_rxe(call, request.qp_type, flags)


def judge_given(call: Call, request: Fields) -> None:
    """Judges the attributes of ioctl(2), and makes them what write(2) would have passed.

    Raises:
        OSError: EINVAL, ENOENT, EOPNOTSUPP.
    """
    kind = request.type
    if kind not in _TYPES:
        raise refused(errno.EINVAL, f"type {kind}")
    if kind == _XRC_TGT:
        given = {"pd_handle", "send_cq_handle", "recv_cq_handle"} & request.keys()
        raise refused(errno.EINVAL if given else errno.ENOENT, "there are no XRC domains")
    if kind == _XRC_INI and "srq_handle" in request:
        raise refused(errno.EINVAL, "an SRQ of a QP that does not receive")
    for name in ("pd_handle", "send_cq_handle", "recv_cq_handle"):
        if name not in request and (kind, name) != (_XRC_INI, "recv_cq_handle"):
            raise refused(errno.ENOENT, name)
    flags = request.get("flags", 0)
    demand_flags(flags, _FLAGS | _SQ_SIG_ALL)
    request["sq_sig_all"] = bool(flags & _SQ_SIG_ALL)
    request["is_srq"] = "srq_handle" in request
    request["qp_type"] = kind
    flags &= ~_SQ_SIG_ALL
    if kind not in (_RAW_PACKET, _DRIVER):
        demand_flags(flags, _BLOCK_LOOPBACK | _END_PADDING if kind == QPType.UD else 0)
    if "source_qpn" in request:
        flags |= _SOURCE_QPN
    _judge_for_rxe(call, kind, flags)


def _judge_for_rxe(call: Call, kind: int, flags: int) -> None:
    call.demand_driver_room(RXE_CREATE_QP_RESP.size)
    if flags:
        raise refused(errno.EOPNOTSUPP, f"flags {flags:#x}")
    if kind not in _OURS:
        raise refused(errno.EOPNOTSUPP, f"qp_type {kind}")
