"""RoCEv2 packets byte by byte, of numbers that need not make sense together."""

from __future__ import annotations

import socket
import struct
import zlib
from dataclasses import dataclass

PORT = 4791
PSN_MASK = 0xFFFFFF
RC, UC, UD = 0x00, 0x20, 0x60
PREFIX = {"RC": RC, "UC": UC, "UD": UD}
OPERATIONS = [
    *("SEND_FIRST", "SEND_MIDDLE", "SEND_LAST", "SEND_LAST_IMM", "SEND_ONLY", "SEND_ONLY_IMM"),
    *("WRITE_FIRST", "WRITE_MIDDLE", "WRITE_LAST", "WRITE_LAST_IMM", "WRITE_ONLY"),
    *("WRITE_ONLY_IMM", "READ", "RESPONSE_FIRST", "RESPONSE_MIDDLE", "RESPONSE_LAST"),
    *("RESPONSE_ONLY", "ACK", "ATOMIC_ACK", "CAS", "FAA", "RESYNC", "SEND_LAST_INV"),
    "SEND_ONLY_INV",
]
NUMBER = {name: number for number, name in enumerate(OPERATIONS)}


def name_of(opcode: int) -> str:
    """An operation, as its service's or any other's."""
    known = opcode & 0x1F < len(OPERATIONS)
    prefix = {number: name for name, number in PREFIX.items()}.get(opcode & 0xE0)
    return f"{prefix}_{OPERATIONS[opcode & 0x1F]}" if known and prefix else f"OPCODE_{opcode:02x}"


def is_answer(operation: str) -> bool:
    """Whether it goes to who asked."""
    return operation.endswith("ACK") or operation.startswith("RESPONSE")


def has_aeth(operation: str) -> bool:
    """Whether it has a syndrome and an MSN."""
    return is_answer(operation) and operation != "RESPONSE_MIDDLE"


def pattern(salt: int, length: int) -> bytes:
    """Bytes that tell where they come from."""
    return bytes((salt * 37 + i * 7 + (i >> 8) * 13) & 0xFF for i in range(length))


def icrc(source: str, destination: str, body: bytes) -> bytes:
    """Of a packet in UDP between two IPv4 addresses, without identification and with DF."""
    length = 8 + len(body) + 4
    addresses = socket.inet_aton(source) + socket.inet_aton(destination)
    header = struct.pack(">BBHHHBBH", 0x45, 0xFF, 20 + length, 0, 0x4000, 0xFF, 17, 0xFFFF)
    udp = struct.pack(">HHHH", PORT, PORT, length, 0xFFFF)
    covered = b"\xff" * 8 + header + addresses + udp + body[:4] + b"\xff" + body[5:]
    return struct.pack("<I", zlib.crc32(covered))


@dataclass
class Received:
    """What of a packet counts: its PSN is told from the first one, its length is a READ's."""

    qpn: int
    psn: int
    length: int
    words: str


def read(datagram: bytes, psn_from: int) -> Received:
    """Reads an answer or a request; PSNs are told from `psn_from`."""
    opcode, flags, pkey, qpn, last = struct.unpack_from(">BBHII", datagram)
    body = datagram[12:-4]
    distance = ((last - psn_from + 0x800000) & PSN_MASK) - 0x800000
    words = [name_of(opcode), f"{distance:+d}"]
    operation = OPERATIONS[opcode & 0x1F] if opcode & 0x1F < len(OPERATIONS) else ""
    if has_aeth(operation):
        syndrome_msn = int.from_bytes(body[:4], "big")
        words.append(f"syndrome {syndrome_msn >> 24:02x} msn {syndrome_msn & PSN_MASK}")
        body = body[4:]
    if flags >> 4 & 3:
        body = body[: -(flags >> 4 & 3)]
    if body:
        shown = body.hex() if len(body) <= 8 else f"{zlib.crc32(body):08x}"
        words.append(f"{len(body)} bytes {shown}")
    if flags & 0x8F or pkey != 0xFFFF:
        # MigReq differs by habit and says nothing: only what is not zero besides.
        odd = flags & 0x8F
        words += [f"flags {odd:02x}"] if odd else []
        words += [f"pkey {pkey:04x}"] if pkey != 0xFFFF else []
    length = int.from_bytes(body[12:16], "big") if operation == "READ" else 0
    return Received(qpn & PSN_MASK, distance, length, " ".join(words))
