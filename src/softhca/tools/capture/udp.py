"""From an IP packet to its UDP datagram, or the reason why there is none to read."""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

_UDP = 17
_UDP_HEADER_BYTES = 8
_IPV6_FRAGMENT = 44
# Hop-by-hop options, routing, destination options: next header, and length in units of 8 bytes.
_IPV6_EXTENSIONS = frozenset({0, 43, 60})


class Outcome(enum.Enum):
    """What find_udp() made of an IP packet that it could not read to its end."""

    OTHER = "not UDP"
    FRAGMENT = "a fragment of an IP packet"
    TRUNCATED = "cut before its end"


@dataclass(frozen=True, slots=True)
class UdpPacket:
    """A UDP datagram and the IP packet around it.

    Attributes:
        ip_packet: From the IP header to the last byte of the datagram.
        udp_at: Offset of the UDP header in `ip_packet`.
    """

    source: IPv4Address | IPv6Address
    destination: IPv4Address | IPv6Address
    source_port: int
    destination_port: int
    ip_packet: bytes
    udp_at: int

    @property
    def payload(self) -> bytes:
        return self.ip_packet[self.udp_at + _UDP_HEADER_BYTES :]


@dataclass(frozen=True, slots=True)
class _IpHeader:
    protocol: int
    payload_at: int
    packet_bytes: int
    identity: tuple[bytes, int]  # Addresses and identification: the same in all fragments.
    fragment_offset: int
    more_fragments: bool


class UdpFinder:
    """Finds UDP datagrams to one port, and the IP fragments of such datagrams."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._fragmented: set[tuple[bytes, int]] = set()

    def find(self, data: bytes, at: int) -> UdpPacket | Outcome:
        """Reads the IP packet that starts at offset `at` of `data`."""
        header = _ip_header(data, at)
        if isinstance(header, Outcome):
            return header
        if header.protocol != _UDP:
            return Outcome.OTHER
        if header.fragment_offset:
            # Only a first fragment has the ports.
            known = header.identity in self._fragmented
            return Outcome.FRAGMENT if known else Outcome.OTHER
        udp_at = at + header.payload_at
        if udp_at + _UDP_HEADER_BYTES > len(data):
            return Outcome.TRUNCATED
        source_port, port, udp_bytes = struct.unpack_from(">HHH", data, udp_at)
        if port != self._port:
            return Outcome.OTHER
        if header.more_fragments:
            self._fragmented.add(header.identity)
            return Outcome.FRAGMENT
        end = _end_of_udp(at + header.packet_bytes, udp_at, udp_bytes)
        if end > len(data):
            return Outcome.TRUNCATED
        packet = data[at:end]
        source, destination = _addresses(packet)
        return UdpPacket(source, destination, source_port, port, packet, header.payload_at)


def _end_of_udp(end_of_ip: int, udp_at: int, udp_bytes: int) -> int:
    """A datagram may be shorter than the IP packet's rest; one that claims more is cut there."""
    if _UDP_HEADER_BYTES <= udp_bytes <= end_of_ip - udp_at:
        return udp_at + udp_bytes
    return end_of_ip


def _addresses(packet: bytes) -> tuple[IPv4Address | IPv6Address, IPv4Address | IPv6Address]:
    if packet[0] >> 4 == 4:
        return IPv4Address(packet[12:16]), IPv4Address(packet[16:20])
    return IPv6Address(packet[8:24]), IPv6Address(packet[24:40])


def _ip_header(data: bytes, at: int) -> _IpHeader | Outcome:
    if at >= len(data):
        return Outcome.TRUNCATED
    version = data[at] >> 4
    if version == 4:
        return _ipv4_header(data, at)
    if version == 6:
        return _ipv6_header(data, at)
    return Outcome.OTHER


def _ipv4_header(data: bytes, at: int) -> _IpHeader | Outcome:
    if at + 20 > len(data):
        return Outcome.TRUNCATED
    header_bytes = (data[at] & 0xF) * 4
    packet_bytes, identification, fragment = struct.unpack_from(">HHH", data, at + 2)
    if header_bytes < 20 or packet_bytes < header_bytes:
        return Outcome.OTHER
    return _IpHeader(
        protocol=data[at + 9],
        payload_at=header_bytes,
        packet_bytes=packet_bytes,
        identity=(data[at + 12 : at + 20], identification),
        fragment_offset=fragment & 0x1FFF,
        more_fragments=bool(fragment & 0x2000),
    )


def _ipv6_header(data: bytes, at: int) -> _IpHeader | Outcome:
    if at + 40 > len(data):
        return Outcome.TRUNCATED
    (payload_bytes,) = struct.unpack_from(">H", data, at + 4)
    protocol = data[at + 6]
    next_at = at + 40
    while protocol in _IPV6_EXTENSIONS:
        if next_at + 2 > len(data):
            return Outcome.TRUNCATED
        protocol, next_at = data[next_at], next_at + 8 * (data[next_at + 1] + 1)
    identification = offset = 0
    more = False
    if protocol == _IPV6_FRAGMENT:
        if next_at + 8 > len(data):
            return Outcome.TRUNCATED
        protocol, _reserved, field, identification = struct.unpack_from(">BBHI", data, next_at)
        next_at += 8
        offset, more = field >> 3, bool(field & 1)
    return _IpHeader(
        protocol=protocol,
        payload_at=next_at - at,
        packet_bytes=40 + payload_bytes,
        identity=(data[at + 8 : at + 40], identification),
        fragment_offset=offset,
        more_fragments=more,
    )
