"""Captures made by hand: frames around datagrams, files around frames, in every layout."""

from __future__ import annotations

import struct
from ipaddress import ip_address

from softhca.verbs.packet import Packet, Route

SOURCE, DESTINATION = "192.0.2.1", "192.0.2.2"
SOURCE6, DESTINATION6 = "2001:db8::1", "2001:db8::2"


def datagram(
    source: str = SOURCE,
    destination: str = DESTINATION,
    *,
    identification: int = 0,
    **fields: object,
) -> bytes:
    """A RoCEv2 packet, BTH to ICRC, right for an IP packet with this identification and DF."""
    packet = Packet()
    packet.opcode = 0x04  # RC_SEND_ONLY
    for name, value in fields.items():
        setattr(packet, name, value)
    route = Route(_gid(source), _gid(destination), identification=identification)
    return packet.encode(route)


def _gid(address: str) -> bytes:
    packed = ip_address(address).packed
    return packed if len(packed) == 16 else bytes(10) + b"\xff\xff" + packed


def ipv4_packet(
    payload: bytes, *, port: int = 4791, fragment: int = 0x4000, identification: int = 0
) -> bytes:
    """An IPv4 packet with a UDP datagram; `fragment` holds the flags and the offset."""
    udp = struct.pack(">HHHH", 0xC000, port, 8 + len(payload), 0) + payload
    return (
        struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), identification, fragment, 64, 17, 0)
        + ip_address(SOURCE).packed
        + ip_address(DESTINATION).packed
        + udp
    )


def ipv6_packet(payload: bytes, *, port: int = 4791) -> bytes:
    """An IPv6 packet with a UDP datagram."""
    udp = struct.pack(">HHHH", 0xC000, port, 8 + len(payload), 0) + payload
    return (
        struct.pack(">IHBB", 6 << 28, len(udp), 17, 64)
        + ip_address(SOURCE6).packed
        + ip_address(DESTINATION6).packed
        + udp
    )


def _ethertype(ip_packet: bytes) -> int:
    return 0x0800 if ip_packet[0] >> 4 == 4 else 0x86DD


def ethernet(ip_packet: bytes, vlans: int = 0) -> bytes:
    """An Ethernet frame with so many VLAN tags."""
    tags = b"".join(struct.pack(">HH", 0x8100, 5 + tag) for tag in range(vlans))
    return bytes(12) + tags + struct.pack(">H", _ethertype(ip_packet)) + ip_packet


def linux_sll(ip_packet: bytes) -> bytes:
    """A frame as a capture on Linux's `any` device has it."""
    return struct.pack(">HHH8sH", 0, 1, 6, b"", _ethertype(ip_packet)) + ip_packet


def linux_sll2(ip_packet: bytes) -> bytes:
    """The second version of it."""
    return struct.pack(">HHIHBB8s", _ethertype(ip_packet), 0, 3, 1, 0, 6, b"") + ip_packet


def bsd_null(ip_packet: bytes, order: str = "<") -> bytes:
    """A frame of a BSD loopback device."""
    return struct.pack(f"{order}I", 2 if ip_packet[0] >> 4 == 4 else 30) + ip_packet


def pcap(
    frames: list[bytes],
    *,
    link_type: int = 1,
    order: str = "<",
    nanoseconds: bool = False,
    snaplen: int | None = None,
) -> bytes:
    """A pcap file; frame n has the time 100 + n seconds and n units."""
    out = struct.pack(
        f"{order}IHHiIII", 0xA1B23C4D if nanoseconds else 0xA1B2C3D4, 2, 4, 0, 0, 65535, link_type
    )
    for number, frame in enumerate(frames):
        kept = frame[:snaplen]
        out += struct.pack(f"{order}IIII", 100 + number, number, len(kept), len(frame)) + kept
    return out


def option(code: int, value: bytes, order: str = "<") -> bytes:
    """A pcapng option."""
    return struct.pack(f"{order}HH", code, len(value)) + value + bytes(-len(value) % 4)


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    """A pcapng block."""
    body += bytes(-len(body) % 4)
    length = 12 + len(body)
    return struct.pack(f"{order}II", kind, length) + body + struct.pack(f"{order}I", length)


def section_header(order: str = "<") -> bytes:
    """Starts a pcapng section of a byte order."""
    return block(0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(
    link_type: int = 1, *, order: str = "<", snaplen: int = 0, options: bytes = b""
) -> bytes:
    """Describes a pcapng interface."""
    return block(1, struct.pack(f"{order}HHI", link_type, 0, snaplen) + options, order)


def enhanced_packet(
    frame: bytes, *, time: int = 0, index: int = 0, order: str = "<", options: bytes = b""
) -> bytes:
    """A pcapng packet with all that one can have."""
    head = struct.pack(f"{order}5I", index, time >> 32, time & 0xFFFFFFFF, len(frame), len(frame))
    return block(6, head + frame + bytes(-len(frame) % 4) + options, order)


def simple_packet(frame: bytes, *, order: str = "<", snaplen: int | None = None) -> bytes:
    """A pcapng packet with neither time nor interface."""
    return block(3, struct.pack(f"{order}I", len(frame)) + frame[:snaplen], order)
