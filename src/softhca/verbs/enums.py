"""Enumerations whose values are those of the kernel's user ABI (ib_user_verbs.h, verbs.h).

Most come from the native adapter, so that there is one list of them.
"""

from __future__ import annotations

from enum import Enum, Flag, IntEnum, IntFlag

from softhca._adapter import (
    Access,
    EventType,
    IcrcLevel,
    MigState,
    Mtu,
    QPAttrMask,
    QPState,
    QPType,
    Reason,
    SendFlags,
    SRQAttrMask,
    WcFlags,
    WcOpcode,
    WcStatus,
    WrOpcode,
)

__all__ = [
    "Access",
    "AtomicCap",
    "EventType",
    "IcrcLevel",
    "MigState",
    "Mtu",
    "NotifyFlags",
    "PortState",
    "QPAttrMask",
    "QPState",
    "QPType",
    "Reason",
    "SRQAttrMask",
    "SendFlags",
    "WcFlags",
    "WcOpcode",
    "WcStatus",
    "WrOpcode",
]


class NotifyFlags(IntFlag):
    """What arms a completion queue (enum ib_cq_notify_flags)."""

    SOLICITED = 1
    NEXT_COMP = 2
    REPORT_MISSED_EVENTS = 4


class PortState(IntEnum):
    """State of a port (enum ibv_port_state)."""

    NOP = 0
    DOWN = 1
    INIT = 2
    ARMED = 3
    ACTIVE = 4
    ACTIVE_DEFER = 5


class AtomicCap(IntEnum):
    """With respect to whom atomics are atomic (enum ibv_atomic_cap)."""

    NONE = 0
    HCA = 1
    GLOB = 2


def _repr(member: Enum) -> str:
    """`WcStatus.SUCCESS`, `Access.LOCAL_WRITE|REMOTE_READ`: names, without the number."""
    if isinstance(member, Flag) and not member.value:
        return f"{type(member).__name__}(0)"
    return f"{type(member).__name__}.{member.name}"


for _name in __all__:
    setattr(globals()[_name], "__repr__", _repr)  # noqa: B010
