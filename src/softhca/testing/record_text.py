"""A record of a trace as words."""

from __future__ import annotations

from contextlib import suppress
from enum import IntEnum

from softhca import _adapter
from softhca._adapter import Access
from softhca.testing.record import RECEIVE, SHARED, SIGNALED, Record, What
from softhca.verbs.enums import EventType, QPState, QPType, WcStatus, WrOpcode

# What an event is of, unless it is of a queue pair.
_ELEMENTS = {
    EventType.CQ_ERR: "cq",
    EventType.SRQ_ERR: "srq",
    EventType.SRQ_LIMIT_REACHED: "srq",
    EventType.PORT_ACTIVE: "port",
    EventType.PORT_ERR: "port",
    EventType.GID_CHANGE: "port",
}


def _name(kind: type[IntEnum], value: int) -> str:
    with suppress(ValueError):
        return kind(value).name
    return str(value)


def opcode_of(record: Record) -> str:
    """Opcode of a packet that was sent."""
    return _adapter.opcode_name(record.data[0]) if record.data else "?"


def psn_of(record: Record) -> int:
    """PSN of a packet that was sent."""
    return int.from_bytes(record.data[9:12], "big")


def destination_qpn(record: Record) -> int:
    """Queue pair that a packet goes to."""
    return int.from_bytes(record.data[5:8], "big")


def packet_text(record: Record) -> str:
    """A packet that was sent: opcode, PSN, and what acknowledges say."""
    text = f"{opcode_of(record).removeprefix('RC_')} psn {psn_of(record)}"
    info = _adapter.Packet.decode(record.data)
    if "AETH" in info.headers:
        kind = {0: "", 1: " RNR NAK", 3: " NAK"}.get(info.syndrome >> 5, "")
        text += f"{kind} {info.syndrome & 31}" if kind else ""
    if info.payload:
        text += f" +{len(info.payload)}"
    if record.b == 1:
        text += " again"
    elif record.b == 2:
        text += " made by a fault"
    return text


def record_text(record: Record) -> str:
    """What happened, in words; who and when are told elsewhere."""
    match record.what:
        case What.SENT:
            return f"sends {packet_text(record)}"
        case What.DELIVERED:
            return f"drops packet {record.packet}: {record.text}" if record.text else "takes it"
        case What.LOST:
            return f"lost: {record.text}"
        case What.FAULT:
            return f"fault: {record.text}"
        case What.POST:
            if record.b & SHARED:
                return f"post_srq_recv wr {record.a:#x} of {record.number} bytes"
            if record.b & RECEIVE:
                return f"post_recv wr {record.a:#x} of {record.number} bytes"
            signaled = "" if record.b & SIGNALED else ", unsignaled"
            opcode = _name(WrOpcode, record.b & 255)
            return f"post_send {opcode} wr {record.a:#x} of {record.number} bytes{signaled}"
        case What.COMPLETION:
            side = "receive" if record.b & RECEIVE else "send"
            status = _name(WcStatus, record.b & 255)
            return f"completes {side} wr {record.a:#x}: {status}, {record.number} bytes"
        case What.STATE:
            if record.b == 255:
                return "destroyed"
            return f"{_name(QPState, record.a & 255)} to {_name(QPState, record.b)}"
        case What.WRITE:
            length = len(record.data) // 2
            return f"memory {record.a:#x} of key {record.number:#x}: {length} bytes change"
        case What.EVENT:
            return f"event {_name(EventType, record.b)}"
        case What.CREATED:
            return f"created {_name(QPType, record.b)}, {record.number} send requests at once"
        case What.KEY:
            return _key_text(record)
        case What.NOTE:
            return record.text


def whose(record: Record) -> str:
    """What of its host a record is about, such as " qp 0x1a"; nothing if it is the host itself."""
    kind = "qp"
    if record.what is What.POST and record.b & SHARED:
        kind = "srq"
    elif record.what is What.EVENT:
        kind = _ELEMENTS.get(EventType(record.b), "qp")
    if not record.qpn:
        return ""
    return f" qp {record.qpn:#x}" if kind == "qp" else f" {kind} {record.qpn}"


def _key_text(record: Record) -> str:
    if not record.data:
        return f"key {record.number:#x} stands for nothing any more"
    length = int.from_bytes(record.data[:8], "big")
    access = Access(record.b).name or "no right"
    return f"key {record.number:#x} is {length} bytes at {record.a:#x}, {access}"
