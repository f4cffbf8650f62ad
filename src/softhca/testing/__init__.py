"""Tools for testing programs that use RDMA: bad networks, virtual time, packets as values."""

from softhca.testing.errors import DeadlockError, FabricError
from softhca.testing.fabric import Fabric
from softhca.testing.fault_packet import FaultPacket
from softhca.testing.fault_script import FabricFaults, Fault, PacketFaults
from softhca.testing.faults import Faults
from softhca.testing.links import Link, Switch
from softhca.testing.simulation import Wire, open_simulated
from softhca.testing.trace import Record, Trace, What
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
    "DeadlockError",
    "Fabric",
    "FabricError",
    "FabricFaults",
    "Fault",
    "FaultPacket",
    "Faults",
    "IcrcVerdict",
    "Link",
    "Packet",
    "PacketFaults",
    "Record",
    "Route",
    "Switch",
    "Trace",
    "What",
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
