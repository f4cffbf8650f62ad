"""One record of a trace."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from softhca import _adapter

# Bits of `b` of a posted work request and of a completion.
RECEIVE = 256
SIGNALED = 512
# Besides, of a receive that was posted to a shared queue: `qpn` is that queue's handle.
SHARED = 1024
# `b` of the state of a queue pair that was destroyed.
DESTROYED = 255


class What(IntEnum):
    """Kinds of records."""

    SENT = 0
    DELIVERED = 1
    LOST = 2
    FAULT = 3
    POST = 4
    COMPLETION = 5
    STATE = 6
    WRITE = 7
    EVENT = 8
    NOTE = 9
    CREATED = 10
    KEY = 11


@dataclass(frozen=True, slots=True)
class Record:
    """One thing that happened.

    Attributes:
        at_ns: When, in virtual time.
        what: Kind of record.
        host: Number of the host, from 0; None if it was on the way.
        qpn: Queue pair there; 0 for none. Of a post to a shared receive queue, that.
        packet: Number of the packet, the same when it is sent, struck by a fault and delivered, and
            in what its delivery causes; 0 for none.
        a: wr_id, or the address of a write or key; what a state was before, and rights above it.
        b: Depends on the kind: opcode of a post, status of a completion, state; of a packet that is
            sent, 1 if it goes again and 2 if a fault made it.
        number: Bytes of a post or completion; key; READs that a state allows at once.
        text: Why a packet was lost or dropped, name of a fault, words of a note.
        data: The datagram of a packet that is sent; what was before a write, and then what is.
        route: IP and UDP headers of a packet that is sent.
    """

    at_ns: int
    what: What
    host: int | None = None
    qpn: int = 0
    packet: int = 0
    a: int = 0
    b: int = 0
    number: int = 0
    text: str = ""
    data: bytes = b""
    route: _adapter.Route | None = None

    @property
    def before(self) -> bytes:
        """What was there before a write."""
        return self.data[: len(self.data) // 2]

    @property
    def after(self) -> bytes:
        """What is there after a write."""
        return self.data[len(self.data) // 2 :]
