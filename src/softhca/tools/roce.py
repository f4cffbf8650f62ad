"""A RoCEv2 packet as a capture has it: its ICRC judged over the bytes that travelled, and in words.

The adapter's own receiver has to solve for the IPv4 identification that sockets hide. A capture
has it, so here every bit of every header is taken as it was.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from softhca.tools.capture import UdpPacket
from softhca.verbs.packet import Packet, crc32, rnr_delay_ns

UDP_PORT = 4791
_BTH_BYTES = 12
_ICRC_BYTES = 4
_SMALLEST_BYTES = _BTH_BYTES + _ICRC_BYTES

# IBTA Vol 1, 9.7.5.2.5.
_NAK_NAMES = (
    "PSN sequence error",
    "invalid request",
    "remote access error",
    "remote operational error",
    "invalid RD request",
)


@dataclass(frozen=True, slots=True)
class RocePacket:
    """One packet, decoded.

    Attributes:
        packet: The headers; `packet.problem` says what is wrong with them.
        icrc: What the packet carries.
        right_icrc: What it should carry.
    """

    udp: UdpPacket
    packet: Packet
    icrc: int
    right_icrc: int

    @property
    def icrc_ok(self) -> bool:
        return self.icrc == self.right_icrc


def read_roce(udp: UdpPacket) -> RocePacket | None:
    """Decodes a datagram; None if it is too short to have a header and an ICRC."""
    datagram = udp.payload
    if len(datagram) < _SMALLEST_BYTES:
        return None
    (carried,) = struct.unpack("<I", datagram[-_ICRC_BYTES:])
    return RocePacket(udp, Packet.decode(datagram), carried, _icrc_of(udp))


def _icrc_of(udp: UdpPacket) -> int:
    """The CRC over eight bytes of ones and the packet, what routers may change replaced by ones."""
    covered = bytearray(b"\xff" * 8) + udp.ip_packet[:-_ICRC_BYTES]
    ip = 8
    if udp.source.version == 4:
        for at in (1, 8, 10, 11):  # Type of service, time to live, header checksum.
            covered[ip + at] = 0xFF
    else:
        covered[ip] |= 0x0F  # Traffic class and flow label.
        for at in (1, 2, 3, 7):  # Their rest, and the hop limit.
            covered[ip + at] = 0xFF
    udp_at = ip + udp.udp_at
    covered[udp_at + 6] = covered[udp_at + 7] = 0xFF  # UDP checksum.
    covered[udp_at + 8 + 4] = 0xFF  # FECN, BECN and reserved bits of the BTH.
    return crc32(bytes(covered))


def syndrome_text(syndrome: int) -> str:
    """An AETH syndrome in words (IBTA Vol 1, 9.7.5.2.1)."""
    kind, code = syndrome >> 5, syndrome & 0x1F
    if kind == 0:
        return "ACK" if code == 0x1F else f"ACK credits {code}"
    if kind == 1:
        return f"RNR NAK {rnr_delay_ns(code) / 1e6:g} ms"
    if kind == 3 and code < len(_NAK_NAMES):
        return f"NAK {_NAK_NAMES[code]}"
    return f"reserved syndrome {syndrome:#04x}"


def _deth(packet: Packet) -> str:
    return f"qkey {packet.qkey:#010x} src {packet.source_qpn:#08x}"


def _reth(packet: Packet) -> str:
    return f"va {packet.virtual_address:#x} rkey {packet.rkey:#010x} len {packet.dma_length}"


def _atomic(packet: Packet) -> str:
    place = f"va {packet.atomic_address:#x} rkey {packet.atomic_rkey:#010x}"
    if packet.opcode_name.endswith("MASKED_FETCH_ADD"):
        return f"{place} add {packet.swap_add:#x} boundary {packet.compare:#018x}"
    if packet.opcode_name.endswith("FETCH_ADD"):
        return f"{place} add {packet.swap_add:#x}"
    return f"{place} swap {packet.swap_add:#x} compare {packet.compare:#x}"


# What each extended header says, by the name that the wire codec gives it.
_HEADER_TEXTS: dict[str, Callable[[Packet], str]] = {
    "DETH": _deth,
    "XRCETH": lambda packet: f"srq {packet.xrc_srqn:#08x}",
    "FETH": lambda packet: f"type {packet.placement_type} level {packet.selectivity}",
    "RETH": _reth,
    "AtomicETH": _atomic,
    "MaskETH": lambda packet: f"compare {packet.compare_mask:#018x} swap {packet.swap_mask:#018x}",
    "AETH": lambda packet: f"{syndrome_text(packet.syndrome)} msn {packet.msn}",
    "AtomicAckETH": lambda packet: f"original {packet.atomic_original:#x}",
    "ImmDt": lambda packet: f"{packet.immediate:#010x}",
    "IETH": lambda packet: f"rkey {packet.invalidate_rkey:#010x}",
}


def header_texts(packet: Packet) -> list[str]:
    """Each extended header in words, in the order of the wire."""
    return [f"{name}({_HEADER_TEXTS[name](packet)})" for name in packet.headers]


def flag_texts(packet: Packet) -> list[str]:
    """The bits of the BTH that are set, and a P_Key that is not the default one."""
    flags = {
        "solicited": packet.solicited,
        "ack-req": packet.ack_request,
        "fecn": packet.fecn,
        "becn": packet.becn,
    }
    texts = [name for name, is_set in flags.items() if is_set]
    if packet.pkey != 0xFFFF:
        texts.append(f"pkey {packet.pkey:#06x}")
    return texts
