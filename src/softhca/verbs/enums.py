"""Enumerations whose values are those of the kernel's user ABI (ib_user_verbs.h, verbs.h).

Most come from the native adapter, so that there is one list of them.
"""

from __future__ import annotations

from enum import Enum, Flag, IntEnum, IntFlag

from softhca._adapter import (
    Access,
    EventType,
    IcrcLevel,
    KeyState,
    MigState,
    MrType,
    Mtu,
    MwType,
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
    "DeviceCap",
    "EventType",
    "FlushLevel",
    "FlushType",
    "IcrcLevel",
    "KeyState",
    "MigState",
    "MrType",
    "Mtu",
    "MwType",
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
    """What arms a completion queue (enum ib_cq_notify_flags).

    Attributes:
        SOLICITED: The next solicited completion, or the next in error.
        NEXT_COMP: The next completion of any kind.
        SOLICITED_MASK: Both of them: arming takes exactly one.
        REPORT_MISSED_EVENTS: Say whether completions wait already.
    """

    SOLICITED = 1
    NEXT_COMP = 2
    SOLICITED_MASK = 3
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


class DeviceCap(IntFlag):
    """What a device can do besides (enum ibv_device_cap_flags)."""

    AUTO_PATH_MIG = 1 << 4
    PORT_ACTIVE_EVENT = 1 << 10
    MEM_WINDOW = 1 << 17
    XRC = 1 << 20
    MEM_MGT_EXTENSIONS = 1 << 21
    MEM_WINDOW_TYPE_2A = 1 << 23
    MEM_WINDOW_TYPE_2B = 1 << 24
    FLUSH_GLOBAL = 1 << 38
    ATOMIC_WRITE = 1 << 40


class FlushType(IntFlag):
    """What a FLUSH shall achieve (enum ibv_placement_type)."""

    GLOBAL = 1
    PERSISTENT = 2


class FlushLevel(IntEnum):
    """What a FLUSH is about (enum ibv_selectivity_level)."""

    RANGE = 0
    MR = 1


def _repr(member: Enum) -> str:
    """`WcStatus.SUCCESS`, `Access.LOCAL_WRITE|REMOTE_READ`: names, without the number."""
    if isinstance(member, Flag) and member.name is None:  # No bit of it has one.
        digits = f"{member.value:#x}" if member.value else "0"
        return f"{type(member).__name__}({digits})"
    return f"{type(member).__name__}.{member.name}"


for _name in __all__:
    setattr(globals()[_name], "__repr__", _repr)  # noqa: B010
