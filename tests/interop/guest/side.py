"""What a check asks of either side: the kernel's rxe, or softhca.

One arena of memory; queue pairs by number; work requests and completions as dictionaries, so that
the same check runs with the sides exchanged, and across a pipe.
"""

from __future__ import annotations

import ipaddress
from abc import ABC, abstractmethod
from typing import Any

from pattern import digest, pattern

ARENA_BYTES = 1 << 20
QKEY = 0x1EE7A11E
GRH_BYTES = 40

# Attributes that connect() gives unless a check says otherwise.
TIMEOUT_CODE = 16  # 268 ms: the guest is slow, and a retry that comes too early proves nothing.
ATTRIBUTES = {
    "min_rnr_timer": 14,
    "timeout": TIMEOUT_CODE,
    "retry_cnt": 7,
    "rnr_retry": 7,
    "rd_atomic": 8,
}


def gid_text(address: str) -> str:
    """A GID as sysfs prints it."""
    parsed = ipaddress.ip_address(address)
    if parsed.version == 4:
        parsed = ipaddress.IPv6Address(b"\0" * 10 + b"\xff\xff" + parsed.packed)
    return parsed.exploded


class Side(ABC):
    """Verbs of one side. Offsets are into its arena."""

    name: str
    gid: str
    # ATOMIC WRITE, which rxe has since Linux 6.2.
    has_atomic_write = True
    # As requester, on a network that repeats and reorders.
    loses_reads = False

    @abstractmethod
    def create_qp(self, kind: str, depth: int) -> dict[str, Any]:
        """Makes an RC, UC or UD queue pair; returns what the other side needs to connect."""

    @abstractmethod
    def connect(
        self, qpn: int, other: dict[str, Any], mtu: int, attributes: dict[str, Any]
    ) -> None:
        """Brings a queue pair to RTS."""

    @abstractmethod
    def state(self, qpn: int) -> str:
        """Name of the queue pair's state."""

    @abstractmethod
    def close_qp(self, qpn: int) -> None:
        """Destroys a queue pair."""

    @abstractmethod
    def post_recv(self, qpn: int, offset: int, length: int, wr_id: int) -> None:
        """Posts a receive."""

    @abstractmethod
    def post_send(self, qpn: int, wr: dict[str, Any]) -> None:
        """Posts a send: op, offset, length, wr_id; and imm, remote, rkey, compare, swap, add.

        LOCAL_INV and SEND_INV invalidate `rkey`.
        """

    @abstractmethod
    def wait(self, qpn: int, count: int, seconds: float) -> list[dict[str, Any]]:
        """Up to `count` completions of a queue pair: wr_id, status, opcode, byte_len, imm, inv."""

    @abstractmethod
    def bind(self, qpn: int, mw_type: int, offset: int, length: int, wr_id: int) -> dict[str, Any]:
        """Allocates a window and binds it to a part of the arena; returns its addr and rkey."""

    @abstractmethod
    def put(self, offset: int, octets: bytes) -> None:
        """Writes into the arena."""

    @abstractmethod
    def get(self, offset: int, length: int) -> bytes:
        """Reads the arena."""

    @abstractmethod
    def counters(self) -> dict[str, int]:
        """Counters of the adapter."""

    def fill(self, offset: int, length: int, seed: int) -> None:
        self.put(offset, pattern(seed, length))

    def clear(self) -> None:
        self.put(0, bytes(ARENA_BYTES))

    def digest(self, offset: int, length: int) -> str:
        return digest(self.get(offset, length))

    def get_u64(self, offset: int) -> int:
        return int.from_bytes(self.get(offset, 8), "little")

    def put_u64(self, offset: int, value: int) -> None:
        self.put(offset, value.to_bytes(8, "little"))
