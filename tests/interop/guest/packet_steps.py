"""What a queue pair is sent, and what a program does meanwhile.

Packets name memory by a word and PSNs by their distance from the first one, so that they are the
same wherever that memory is.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Protocol

from packet_bytes import (
    OPERATIONS,
    PREFIX,
    PSN_MASK,
    has_aeth,
    icrc,
    is_answer,
    name_of,
    pattern,
)

MTU = 256
# Not a multiple of anything.
REGION_BYTES = 1501
SMALL_BYTES = 300
QKEY = 0x11111111
# What a peer may do with each; those of `all` are the queue pair's as well.
REGIONS = ("all", "window", "reads", "writes", "local", "foreign", "gone", "none")
WINDOW_AT, WINDOW_BYTES = 104, 400


class Places(Protocol):
    """What only the process knows that has the queue pair."""

    qpn: int
    psn: int

    def address(self, region: str) -> int: ...
    def rkey(self, region: str) -> int: ...


@dataclass
class Step:
    """A packet, by all of its numbers."""

    opcode: int
    psn: int
    payload: int = 0
    salt: int = 0
    ack: bool = True
    solicited: bool = False
    migrated: bool = True
    version: int = 0
    pkey: int = 0xFFFF
    congestion: int = 0
    # Added to what the payload needs, and told without being there.
    more_pad: int = 0
    false_pad: int = 0
    region: str = "all"
    offset: int = 0
    length: int = 0
    operand: int = 0
    compare: int = 0
    immediate: int = 0
    invalidates: str = "none"
    syndrome: int = 0x1F
    msn: int = 0
    qkey: int = QKEY
    cut: int = 0
    spoiled: int = 0
    wrong_qpn: bool = False

    @property
    def operation(self) -> str:
        """The operation alone; empty for a number that has none."""
        number = self.opcode & 0x1F
        return OPERATIONS[number] if number < len(OPERATIONS) else ""

    def has_reth(self) -> bool:
        """Whether it names memory and a length."""
        return self.operation in ("WRITE_FIRST", "WRITE_ONLY", "WRITE_ONLY_IMM", "READ")

    def words(self) -> str:
        """All that matters of it, for people and for the comparison."""
        said = [name_of(self.opcode), f"{self.psn:+d}"]
        if self.payload:
            said.append(f"bytes {self.payload}")
        if self.has_reth():
            said.append(f"of {self.region}{self.offset:+d} length {self.length}")
        elif self.operation in ("CAS", "FAA"):
            said.append(f"of {self.region}{self.offset:+d}")
        elif self.operation.endswith("_INV"):
            said.append(f"invalidates {self.invalidates}")
        elif is_answer(self.operation):
            said.append(f"syndrome {self.syndrome:02x} msn {self.msn}")
        usual = Step(0, 0)
        for name in ("version", "congestion", "more_pad", "false_pad", "cut", "spoiled"):
            if getattr(self, name) != getattr(usual, name):
                said.append(f"{name.replace('_', '-')} {getattr(self, name)}")
        for name in ("pkey", "qkey"):
            if getattr(self, name) != getattr(usual, name):
                said.append(f"{name} {getattr(self, name):x}")
        said += [] if self.ack or is_answer(self.operation) else ["silent"]
        said += ["solicited"] if self.solicited else []
        said += [] if self.migrated else ["unmigrated"]
        said += ["wrong-qpn"] if self.wrong_qpn else []
        return " ".join(said)

    def headers(self, places: Places) -> bytes:
        """What is between BTH and payload."""
        octets = b""
        operation = self.operation
        if self.opcode & 0xE0 == PREFIX["UD"]:
            octets += struct.pack(">II", self.qkey, 0xABC)
        address = (places.address(self.region) + self.offset) & 0xFFFFFFFFFFFFFFFF
        if self.has_reth():
            octets += struct.pack(">QII", address, places.rkey(self.region), self.length)
        elif operation in ("CAS", "FAA"):
            rkey = places.rkey(self.region)
            octets += struct.pack(">QIQQ", address, rkey, self.operand, self.compare)
        if operation.endswith("_IMM"):
            octets += struct.pack(">I", self.immediate)
        elif operation.endswith("_INV"):
            octets += struct.pack(">I", places.rkey(self.invalidates))
        if has_aeth(operation):
            octets += struct.pack(">I", self.syndrome << 24 | self.msn & PSN_MASK)
        if operation == "ATOMIC_ACK":
            octets += struct.pack(">Q", self.operand)
        return octets

    def octets(self, places: Places, source: str, destination: str) -> bytes:
        """The payload of its UDP datagram."""
        pad = -self.payload % 4 + self.more_pad
        flags = self.solicited << 7 | self.migrated << 6 | self.version
        flags |= ((pad + self.false_pad) & 3) << 4
        qpn = places.qpn ^ (0x800000 if self.wrong_qpn else 0)
        psn = (places.psn + self.psn) & PSN_MASK
        words = self.congestion << 24 | qpn, self.ack << 31 | psn
        octets = struct.pack(">BBHII", self.opcode, flags, self.pkey, *words)
        octets += self.headers(places) + pattern(self.salt, self.payload) + bytes(pad)
        octets = octets[: max(12, len(octets) - self.cut)]
        end = bytearray(icrc(source, destination, octets))
        end[0] ^= self.spoiled
        return octets + bytes(end)


@dataclass
class Deed:
    """No packet: the program does something meanwhile."""

    # post (a receive of so many bytes), rights (of the queue pair), forget (a region), again
    # (everything from RESET).
    verb: str
    what: str

    def words(self) -> str:
        return f"{self.verb} {self.what}"


@dataclass
class Ask:
    """No packet: the program asks for something, by operations and lengths."""

    requests: list[tuple[str, int]]

    def words(self) -> str:
        return "ask " + " ".join(f"{operation}:{length}" for operation, length in self.requests)


@dataclass
class Case:
    """A queue pair, what it has to receive into, and what it is sent."""

    number: int
    kind: str
    psn: int
    rights: int
    resources: int
    receives: list[list[int]]
    bad_receive: int
    # It asks, and is sent answers; otherwise it is sent requests.
    asks: bool = False
    # It receives from a shared queue, or is not yet in RTS.
    shared: bool = False
    early: bool = False
    retries: int = 7
    steps: list[Step | Deed | Ask] = field(default_factory=list)

    def words(self) -> str:
        """What it has; the steps say the rest."""
        receives = ",".join("+".join(map(str, sizes)) for sizes in self.receives) or "none"
        bad = f" bad {self.bad_receive}" if self.bad_receive >= 0 else ""
        kind = self.kind + " asks" * self.asks + " shared" * self.shared + " early" * self.early
        kind += "" if self.retries == 7 else f" retries {self.retries}"
        return (
            f"{kind} psn {self.psn:06x} rights {self.rights:x} resources {self.resources}"
            f" receives {receives}{bad}"
        )
