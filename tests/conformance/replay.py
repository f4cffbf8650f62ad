"""One capture of rxe as a script: what was posted, what each side sent, how it completed.

Host a (10.9.0.1) is the requester and host b (10.9.0.2) the responder, in every capture.
"""

from __future__ import annotations

import ipaddress
import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from softhca._adapter import Packet, QPType, WcFlags, WrOpcode

from .conftest import captures_dir
from .host import gid_of
from .pcap import roce_frames
from .peer import operation_of, psn_after

MEMORY_BYTES = 65536
ATOMICS = (WrOpcode.ATOMIC_CMP_AND_SWP, WrOpcode.ATOMIC_FETCH_AND_ADD)
SENDS = (WrOpcode.SEND, WrOpcode.SEND_WITH_IMM)
WITH_IMMEDIATE = (WrOpcode.SEND_WITH_IMM, WrOpcode.RDMA_WRITE_WITH_IMM)


@dataclass
class Script:
    """A vector and its capture."""

    vector: dict[str, Any]
    directory: Path = field(default_factory=captures_dir)

    @property
    def name(self) -> str:
        return str(self.vector["name"])

    @property
    def qp_type(self) -> QPType:
        return QPType[self.vector["qp_type"]]

    @property
    def path_mtu(self) -> int:
        return {256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}[self.vector["mtu"]]

    def address(self, side: str) -> str:
        address = ipaddress.IPv6Address(self.vector[side]["gid"])
        return str(address.ipv4_mapped or address)

    @cached_property
    def frames(self) -> list[tuple[str, Packet]]:
        """(side that sent it, packet), in the order of the capture."""
        a = gid_of(self.address("a"))
        return [
            ("a" if frame.route.source == a else "b", frame.packet)
            for frame in roce_frames(self.directory / f"{self.name}.pcap")
        ]

    def sent_by(self, side: str) -> list[Packet]:
        return [packet for sender, packet in self.frames if sender == side]

    @property
    def rounds(self) -> list[tuple[list[Packet], list[Packet]]]:
        """Requests, then the responses that came before the next request; over and over."""
        out: list[tuple[list[Packet], list[Packet]]] = []
        last = "b"
        for side, packet in self.frames:
            if side == "a" and last == "b":
                out.append(([], []))
            out[-1][side == "b"].append(packet)
            last = side
        return out

    @property
    def qpn_of_b(self) -> int:
        """Where the requests went: in one capture that is no queue pair at all."""
        return int(self.sent_by("a")[0].destination_qpn)

    # --- what was posted

    @property
    def posted(self) -> dict[str, Any]:
        (posted,) = self.vector["posted"]
        return dict(posted)

    @property
    def opcode(self) -> WrOpcode:
        return WrOpcode(self.posted["opcode"])

    @property
    def immediate(self) -> int:
        return int(self.posted["imm_be"] or "0", 16)

    @property
    def message(self) -> bytes:
        """The bytes of the message: what the requests, or the READ responses, carried."""
        side = "b" if self.opcode == WrOpcode.RDMA_READ else "a"
        carried = {
            packet.psn: packet.payload
            for packet in self.sent_by(side)
            if "ACKNOWLEDGE" not in operation_of(packet)
        }
        psn, message = self.vector["a"]["psn"], b""
        while psn in carried:
            message += carried[psn]
            psn = psn_after(psn)
        return message

    # --- how it completed

    def wcs(self, side: str) -> list[dict[str, Any]]:
        return list(self.vector[f"{side}_wc"])

    @property
    def takes_a_receive(self) -> bool:
        return self.opcode in (*SENDS, WrOpcode.RDMA_WRITE_WITH_IMM)


def immediate_of(wc: dict[str, Any]) -> int | None:
    """The immediate of a vector's completion as a big-endian integer; None if it has none."""
    if not wc["wc_flags"] & WcFlags.WITH_IMM:
        return None
    return int.from_bytes(wc["imm_data"].to_bytes(4, "little"), "big")


def load_scripts() -> list[Script]:
    path = captures_dir() / "vectors.json"
    if not path.exists():
        return []
    return [Script(vector) for vector in json.loads(path.read_text())]


SCRIPTS = load_scripts()
NAMES = [script.name for script in SCRIPTS] or ["none"]


def script_named(name: str) -> Script:
    return next(script for script in SCRIPTS if script.name == name)
