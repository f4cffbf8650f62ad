"""Takes trains apart: several datagrams in one frame, as a capture on the sending machine has them.

A sender may hand the kernel many packets of one length at once (UDP_SEGMENT). They become packets
of their own in the network card, or, within a machine, never: there a capture has all of them
behind one IP header. How long each is, it does not say; their ICRCs do.
"""

from __future__ import annotations

import struct
from dataclasses import replace

from softhca.tools.capture import UdpPacket
from softhca.tools.roce import read_roce

_MOST_PACKETS = 128
_LONGEST_BYTES = 12 + 4 + 28 + 4 + 4096 + 4
_SHORTEST_BYTES = 16
_UDP_HEADER_BYTES = 8


def take_apart(udp: UdpPacket) -> list[UdpPacket]:
    """The packets of a train; of anything else, what was given."""
    payload_bytes = len(udp.payload)
    shortest = max(_SHORTEST_BYTES, -(-payload_bytes // _MOST_PACKETS))
    for segment_bytes in range(shortest, min(_LONGEST_BYTES, payload_bytes - 1) + 1):
        # Every packet is a multiple of four bytes long, and so is what is left for the last.
        left = payload_bytes % segment_bytes
        if segment_bytes % 4 or left % 4 or 0 < left < _SHORTEST_BYTES:
            continue
        first = _segment(udp, 0, segment_bytes)
        if _is_whole(first):
            count = -(-payload_bytes // segment_bytes)
            rest = [_segment(udp, place, segment_bytes) for place in range(1, count)]
            if all(_is_whole(one) for one in rest):
                return [first, *rest]
    return [udp]


def _is_whole(udp: UdpPacket) -> bool:
    roce = read_roce(udp)
    return roce is not None and roce.icrc_ok


def _segment(udp: UdpPacket, place: int, segment_bytes: int) -> UdpPacket:
    """One packet as it would travel: with lengths and, over IPv4, an identification of its own."""
    headers_bytes = udp.udp_at + _UDP_HEADER_BYTES
    start = headers_bytes + place * segment_bytes
    payload = udp.ip_packet[start : start + segment_bytes]
    packet = bytearray(udp.ip_packet[:headers_bytes]) + payload
    struct.pack_into(">H", packet, udp.udp_at + 4, _UDP_HEADER_BYTES + len(payload))
    if udp.source.version == 4:
        (identification,) = struct.unpack_from(">H", packet, 4)
        struct.pack_into(">HH", packet, 2, len(packet), (identification + place) & 0xFFFF)
    else:
        struct.pack_into(">H", packet, 4, len(packet) - 40)
    return replace(udp, ip_packet=bytes(packet))
