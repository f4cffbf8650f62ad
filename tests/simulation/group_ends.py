"""What a walk over groups has: their members, what these receive, and what is under way."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import softhca as hca
from softhca import QPType, WcStatus

GRH = 40
# Of a datagram with an immediate: BTH, DETH, the immediate, ICRC; and of UDP and IPv4.
HEADERS, UDP_BYTES, IP_BYTES = 12 + 8 + 4 + 4, 8, 20
UDP = 17  # Protocol number.
EVERYONE = 0xFFFFFF
INLINE = 128
SGES = 6
DEPTH = 16
CANARY = 0xC5


@dataclass
class Message:
    """A datagram, and who may receive it."""

    number: int
    sender: Member
    to: hca.GID
    data: bytes = field(repr=False)
    is_refused: bool  # By its Q_Key.
    far: set[int]  # Members that it is for, and that have not received it.
    certain: set[int] = field(default_factory=set)  # Of these, who will receive it,
    possible: set[int] = field(default_factory=set)  # and who may.


@dataclass
class Receive:
    """A receive: where it begins in the member's memory, and its pieces."""

    number: int
    place: int
    pieces: list[tuple[int, int]]

    @property
    def room(self) -> int:
        return sum(length for _, length in self.pieces)


class Member:
    """A queue pair for datagrams, which sends and receives."""

    def __init__(self, number: int, device: hca.Device, qkey: int) -> None:
        self.number, self.device, self.qkey = number, device, qkey
        self.mtu = 128 << device.active_mtu.value
        self.slot = GRH + self.mtu + 64
        self.pd = device.alloc_pd()
        self.cqs = [device.create_cq(4 * DEPTH) for _ in range(2)]
        self.buffer = bytearray(DEPTH * self.slot)
        self.mr = self.pd.reg_mr(self.buffer)
        self.source = bytearray(2 * self.mtu)
        self.source_mr = self.pd.reg_mr(self.source)
        self.qp = self.pd.create_qp(
            QPType.UD,
            send_cq=self.cqs[0],
            recv_cq=self.cqs[1],
            max_send_wr=2 * DEPTH,
            max_recv_wr=DEPTH,
            max_send_sge=SGES,
            max_recv_sge=SGES,
            max_inline_data=INLINE,
        )
        self.qp.activate(qkey=qkey)
        self.groups: set[hca.GID] = set()
        self.receives: deque[Receive] = deque()
        self.places = list(range(DEPTH))
        self.sent: deque[tuple[int, WcStatus]] = deque()

    def close(self) -> None:
        for group in list(self.groups):
            self.qp.detach_mcast(group)
        for one in (self.qp, *self.cqs, self.mr, self.source_mr, self.pd):
            one.close()
