"""What a walk over windows has: the memory that is lent, the windows on it, and what was asked."""

from __future__ import annotations

import mmap
import random
from collections import deque
from dataclasses import dataclass, field

import softhca as hca
from softhca import Access, MwType, QPType

# Of each window's part of the memory: what is only read, what is only written to, a counter, and
# what no window covers.
READ_BYTES = 1 << 16
WRITE_AT, WRITE_BYTES = READ_BYTES, 3 << 15
COUNT_AT = WRITE_AT + WRITE_BYTES
LENT_BYTES = COUNT_AT + 8
BEYOND_BYTES = 64
PART = LENT_BYTES + BEYOND_BYTES
SLOTS, SLOT = 8, 1 << 16  # Of the asker.
DEPTH = 8
ALL = Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC
RIGHT = {"read": Access.REMOTE_READ, "write": Access.REMOTE_WRITE, "add": Access.REMOTE_ATOMIC}


@dataclass
class Asked:
    """A request through a lending, or one that takes it back."""

    number: int
    kind: str
    lending: Lending | None
    slot: int = -1
    at: int = 0  # In the window's part.
    data: bytes = field(default=b"", repr=False)
    fence: bool = False
    must_fail: bool = False
    done: bool = False  # It has succeeded.

    def fails_by(self, end: Asked) -> bool:
        """Whether what takes the key back may take it from this one, posted on the same queue."""
        return self.number > end.number or (self.kind != "write" and not end.fence)


class Lending:
    """A window as one bind made it: a key, until somebody takes it back."""

    def __init__(self, window: Window, owner: Link, remote: hca.RemoteMemory, access: Access):
        self.window, self.owner, self.remote, self.access = window, owner, remote, access
        self.bound = False
        self.ended = False
        self.gone = False  # With its window, or with its connection.
        self.ends: list[Asked] = []  # What may have taken it back.
        self.asked: list[Asked] = []
        self.written = 0

    def may_fail(self, e: Asked) -> bool:
        """Whether `e` may find that the key is gone by now."""
        return self.gone or any(end.kind != "sendinv" or e.fails_by(end) for end in self.ends)


class Window:
    """A window, the part of the memory that is its own, and what must be there."""

    def __init__(self, pd: hca.PD, mr: hca.MR, buffer: mmap.mmap, number: int) -> None:
        self.pd, self.mr, self.buffer, self.start = pd, mr, buffer, number * PART
        self.type = (MwType.TYPE_1, MwType.TYPE_2, MwType.TYPE_2)[number % 3]
        self.mw = pd.alloc_mw(self.type)
        self.lending: Lending | None = None  # Bound, or being bound.
        self.next: Lending | None = None  # Of type 1: being bound in its place.
        self.base = b""

    def fill(self, draw: random.Random) -> None:
        """Nobody has the key to what is there now."""
        # Long enough that what a request brings fits nowhere else.
        self.base = draw.randbytes(PART // 16) * 16 + draw.randbytes(PART % 16)
        self.buffer[self.start : self.start + PART] = self.base

    def look(self) -> None:
        """The memory holds what was asked for through the key that there is, and nothing else."""
        asked = self.lending.asked if self.lending is not None else []
        adds = [e for e in asked if e.kind == "add" and not e.must_fail]
        done, now = sum(e.done for e in adds), self.buffer[self.start : self.start + PART]
        base, end = self.base, WRITE_AT
        assert now[:WRITE_AT] == base[:WRITE_AT], "what is only read has changed"
        for e in asked:
            if e.kind != "write" or e.must_fail or not e.data:
                continue
            assert e.at == end
            end += len(e.data)
            there, before = now[e.at : end], base[e.at : end]
            if e.done:
                assert there == e.data, f"{e} is not there"
            elif there not in (before, e.data):
                bytewise = zip(there, before, e.data, strict=True)
                assert all(t in (b, d) for t, b, d in bytewise), f"{e} left something else"
        assert now[end:COUNT_AT] == base[end:COUNT_AT], "nobody wrote there"
        assert now[LENT_BYTES:] == base[LENT_BYTES:], "it is beyond the window"
        count = int.from_bytes(now[COUNT_AT:LENT_BYTES], "little") - self.first_count
        assert done <= count % (1 << 64) <= len(adds), f"{count} of {done} to {len(adds)}"

    @property
    def first_count(self) -> int:
        return int.from_bytes(self.base[COUNT_AT:LENT_BYTES], "little")


class Link:
    """A connection: one end asks, the other has lent its memory."""

    asker: hca.QP
    lender: hca.QP

    def __init__(self, asks: hca.PD, lends: hca.PD) -> None:
        self.pds = (asks, lends)
        self.cqs = [pd.device.create_cq(64) for pd in self.pds]
        self.receives = lends.device.create_cq(64)
        self.buffer = mmap.mmap(-1, SLOTS * SLOT)
        self.mr = asks.reg_mr(self.buffer)
        self.psns: deque[int] = deque(maxlen=4)  # The last connections', of which packets are left.
        self.make()

    def make(self) -> None:
        """Makes the queue pairs."""
        self.asker, self.lender = (
            pd.create_qp(
                QPType.RC,
                send_cq=cq,
                recv_cq=receives,
                max_send_wr=2 * DEPTH,
                max_recv_wr=2 * DEPTH,
            )
            for pd, cq, receives in zip(
                self.pds, self.cqs, (self.cqs[0], self.receives), strict=True
            )
        )
        self.begin()

    def begin(self) -> None:
        """Nothing of a connection is there."""
        self.asked: deque[Asked] = deque()
        self.local: deque[tuple[int, str, Lending | None]] = deque()  # At the lender.
        self.expected: deque[tuple[Asked, bytes]] = deque()  # Messages to come.
        self.receiving = 0
        self.failed = False  # A request was refused.
        self.broken = False  # The program took both ends to ERR.
