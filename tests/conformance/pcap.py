"""Reads classic pcap files of Ethernet frames, as far as these tests need it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from softhca._adapter import Packet, Route, parse_ip_udp

ETHERNET_BYTES = 14
ROCE_PORT = 4791


@dataclass(frozen=True)
class Frame:
    """A RoCEv2 frame: its route, the bytes from BTH to ICRC, and what they decode to."""

    route: Route
    datagram: bytes
    packet: Packet


def ethernet_frames(path: Path) -> Iterator[bytes]:
    octets = path.read_bytes()
    order = "<" if octets[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    at = 24
    while at < len(octets):
        (length,) = struct.unpack_from(order + "I", octets, at + 8)
        yield octets[at + 16 : at + 16 + length]
        at += 16 + length


def roce_frames(path: Path) -> list[Frame]:
    found = []
    for frame in ethernet_frames(path):
        if frame[12:14] not in (b"\x08\x00", b"\x86\xdd"):
            continue
        parsed = parse_ip_udp(frame[ETHERNET_BYTES:])
        if parsed is not None and parsed[0].udp_destination_port == ROCE_PORT:
            route, datagram, _ = parsed
            found.append(Frame(route, datagram, Packet.decode(datagram)))
    return found
