"""RoCEv2 packets as values: decoded, encoded, and their ICRC checked."""

from __future__ import annotations

from softhca._adapter import (
    IcrcVerdict,
    Packet,
    Route,
    check_icrc,
    crc32,
    crc32_by_table,
    crc32_routine,
    encode_grh,
    encode_ip_udp,
    header_names,
    icrc_of,
    opcode_name,
    parse_ip_udp,
    rnr_delay_ns,
)
from softhca.verbs.gid import GID, GIDLike

__all__ = [
    "IcrcVerdict",
    "Packet",
    "Route",
    "check_icrc",
    "crc32",
    "crc32_by_table",
    "crc32_routine",
    "encode_grh",
    "encode_ip_udp",
    "header_names",
    "icrc_of",
    "opcode_name",
    "parse_ip_udp",
    "rnr_delay_ns",
    "route",
]


def route(source: GIDLike, destination: GIDLike, **fields: int) -> Route:
    """Makes a route between two addresses; `fields` are those of `Route`."""
    return Route(GID(source).raw, GID(destination).raw, **fields)
