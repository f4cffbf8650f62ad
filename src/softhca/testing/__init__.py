"""Tools for testing programs that use RDMA: bad networks, virtual time, packets as values."""

from softhca.testing.faults import Faults
from softhca.testing.simulation import Wire, open_simulated
from softhca.testing.trouble import fail_device, set_gid, set_port
from softhca.verbs.packet import (
    IcrcVerdict,
    Packet,
    Route,
    check_icrc,
    encode_grh,
    encode_ip_udp,
    icrc_of,
    opcode_name,
    parse_ip_udp,
    route,
)

__all__ = [
    "Faults",
    "IcrcVerdict",
    "Packet",
    "Route",
    "Wire",
    "check_icrc",
    "encode_grh",
    "encode_ip_udp",
    "fail_device",
    "icrc_of",
    "opcode_name",
    "open_simulated",
    "parse_ip_udp",
    "route",
    "set_gid",
    "set_port",
]
