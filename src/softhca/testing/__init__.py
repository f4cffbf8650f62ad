"""Tools for testing programs that use RDMA: bad networks, virtual time, packets as values."""

from softhca.testing.errors import DeadlockError, FabricError
from softhca.testing.explore import ExploreError, Finding, explore
from softhca.testing.fabric import Fabric
from softhca.testing.fault_packet import FaultPacket
from softhca.testing.fault_script import FabricFaults, Fault, LinkFaults, PacketFaults
from softhca.testing.faults import Faults
from softhca.testing.invariants import InvariantError, check_invariants
from softhca.testing.links import Link, Switch
from softhca.testing.pair import End, Pair, open_objects
from softhca.testing.races import MemoryWatch, RaceError
from softhca.testing.record import Record, What
from softhca.testing.simulation import Wire, open_simulated
from softhca.testing.trace import SavedTrace, Trace
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
    "End",
    "ExploreError",
    "Fabric",
    "FabricError",
    "FabricFaults",
    "Fault",
    "FaultPacket",
    "Faults",
    "Finding",
    "IcrcVerdict",
    "InvariantError",
    "Link",
    "LinkFaults",
    "MemoryWatch",
    "Packet",
    "PacketFaults",
    "Pair",
    "RaceError",
    "Record",
    "Route",
    "SavedTrace",
    "Switch",
    "Trace",
    "What",
    "Wire",
    "check_icrc",
    "check_invariants",
    "encode_grh",
    "encode_ip_udp",
    "explore",
    "fail_device",
    "icrc_of",
    "opcode_name",
    "open_objects",
    "open_simulated",
    "parse_ip_udp",
    "route",
    "set_gid",
    "set_port",
]
