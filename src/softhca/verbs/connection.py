"""How a queue pair gets from RESET to RTS, step by step."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from softhca.verbs.attributes import AHAttr
from softhca.verbs.checks import instance
from softhca.verbs.enums import Access, Mtu, QPState, QPType
from softhca.verbs.errors import VerbsError
from softhca.verbs.gid import GID
from softhca.verbs.qp_info import QPInfo

if TYPE_CHECKING:
    from softhca.verbs.qp import QP

# Any value that both sides know; most significant bit clear, since those with it are privileged.
DEFAULT_QKEY = 0x11111111

_NO_GID = GID(bytes(16))

_ALL_REMOTE = Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC | Access.FLUSH_GLOBAL
_INIT = ("pkey_index", "port_num", "qp_access_flags")
_ADDRESS = ("ah_attr", "path_mtu", "dest_qp_num", "rq_psn")
_RESPOND = (*_ADDRESS, "max_dest_rd_atomic", "min_rnr_timer")
_REQUEST = ("timeout", "retry_cnt", "rnr_retry", "sq_psn", "max_rd_atomic")

# Attributes of each step: to INIT, RTR and RTS (IBTA Vol 1, table 96).
_STEPS: dict[QPType, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    QPType.RC: (_INIT, _RESPOND, _REQUEST),
    QPType.UC: (_INIT, _ADDRESS, ("sq_psn",)),
    QPType.UD: (("pkey_index", "port_num", "qkey"), (), ("sq_psn",)),
    QPType.XRC_SEND: (_INIT, _ADDRESS, _REQUEST),
    QPType.XRC_RECV: (_INIT, _RESPOND, ("timeout", "sq_psn")),
}

# Type of the queue pair at the other end.
_PEER = {
    QPType.RC: QPType.RC,
    QPType.UC: QPType.UC,
    QPType.XRC_SEND: QPType.XRC_RECV,
    QPType.XRC_RECV: QPType.XRC_SEND,
}


def info_of(qp: QP, srqn: int) -> QPInfo:
    """What a peer needs to connect to `qp`."""
    device = qp.device
    gid = device.query_gid()
    return QPInfo(
        gid=gid if gid != _NO_GID else device.gid,  # It may come back.
        qpn=qp.qpn,
        psn=qp.psn,
        mtu=device.active_mtu,
        qkey=qp.query().qkey if qp.type is QPType.UD else 0,
        rd_atomic=device.max_rd_atomic,
        qp_type=qp.type,
        srqn=srqn,
    )


def _defaults(qp: QP, info: QPInfo | None) -> dict[str, Any]:
    values: dict[str, Any] = {
        "pkey_index": 0,
        "port_num": 1,
        "qp_access_flags": _ALL_REMOTE,
        "qkey": DEFAULT_QKEY,
        "min_rnr_timer": 12,
        "timeout": 16,
        "retry_cnt": 7,
        "rnr_retry": 7,
        "sq_psn": qp.psn,
        "max_dest_rd_atomic": qp.device.max_rd_atomic,
    }
    if info is not None:
        values |= {
            "ah_attr": AHAttr(dgid=info.gid),
            "path_mtu": Mtu(min(qp.device.active_mtu, info.mtu)),
            "dest_qp_num": info.qpn,
            "rq_psn": info.psn,
            "max_rd_atomic": min(qp.device.max_rd_atomic, info.rd_atomic),
        }
    return values


def connect(qp: QP, info: QPInfo | None, overrides: dict[str, Any]) -> None:
    """Brings `qp` from RESET to RTS; see `QP.connect`."""
    peer = _PEER.get(qp.type)
    if peer is not None and instance("info", info, QPInfo).qp_type is not peer:
        raise VerbsError(
            errno.EINVAL, "info", info, f"must be of an {peer.name} queue pair to connect {qp!r}"
        )
    if qp.state is not QPState.RESET:
        raise VerbsError(errno.EINVAL, "qp_state", qp.state, "connect() starts from RESET")
    values = _defaults(qp, info) | overrides
    steps = _STEPS[qp.type]
    unknown = sorted(set(overrides) - {name for step in steps for name in step})
    if unknown:
        raise TypeError(
            f"{unknown[0]!r} is no attribute of connecting an {qp.type.name} queue pair"
        )
    try:
        for state, names in zip((QPState.INIT, QPState.RTR, QPState.RTS), steps, strict=True):
            qp.modify(qp_state=state, **{name: values[name] for name in names})
    except BaseException:  # Also of a wrong type, and an interrupt between two steps.
        qp.modify(qp_state=QPState.RESET)
        raise
