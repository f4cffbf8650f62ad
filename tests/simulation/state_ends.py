"""What a walk over states has at each end: queues that are armed, pools of receives, requests."""

from __future__ import annotations

import itertools
import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import softhca as hca
from softhca import Access, NotifyFlags, QPType
from softhca.testing import Fabric, InvariantError

from .real_hosts import RealHosts

SLOT = 2048
SLOTS = 12
DEPTH = 12
LANDINGS = 48
POLLED = 4
SGES = 5
INLINE = 200
CONNECTED = (QPType.RC, QPType.UC)  # With receives of their own, or an SRQ.
IN_AT, WORD_AT = SLOTS * SLOT, 2 * SLOTS * SLOT
RIGHTS = (
    Access.LOCAL_WRITE
    | Access.REMOTE_READ
    | Access.REMOTE_WRITE
    | Access.REMOTE_ATOMIC
    | Access.MW_BIND
    | Access.FLUSH_GLOBAL
)


@dataclass
class Asked:
    """A request, and what must come of it."""

    number: int
    kind: str
    signaled: bool
    slot: int
    data: bytes = field(repr=False)


def pieces(mr: hca.MR, start: int, size: int, draw: random.Random) -> list[hca.Sge]:
    """A run of bytes as one entry or several, of which some are empty."""
    count = draw.choice([1, 1, 1, 2, 3, SGES])
    cuts = sorted(draw.choice([0, 1, size, draw.randrange(size + 1)]) for _ in range(count - 1))
    ends = [0, *(min(cut, size) for cut in cuts), size]
    return [mr[start + a : start + b] for a, b in itertools.pairwise(ends)]


class Queue:
    """A completion queue, and what a program that arms it is promised."""

    def __init__(self, device: hca.Device) -> None:
        self.device = device
        self.channel = device.create_comp_channel()
        self.cq = device.create_cq(256, channel=self.channel)
        self.armed: NotifyFlags | None = None
        self.missed = False  # Completions were there already.
        self.period_ns = 0
        self.due_ns = 0  # When a completion that it must tell of was first seen.

    def arm(self, how: NotifyFlags) -> None:
        if self.armed is None:
            self.armed = how
            self.missed = bool(self.cq.req_notify(how | NotifyFlags.REPORT_MISSED_EVENTS))

    def moderate(self, count: int, period_us: int) -> None:
        self.cq.modify(cq_count=count, cq_period=period_us)
        self.period_ns = max(self.period_ns, period_us * 1000)

    def poll(self, now_ns: int, *, progress: bool) -> list[hca.WC]:
        """Takes what is there; an armed queue has told of it, or does so in its period."""
        wcs = self.device.adapter.poll_cq(self.cq.handle, POLLED, hca.WC, progress=progress)
        if self.channel.poll_event() is not None:
            assert self.armed is not None, "an event of a queue that is not armed"
            self.cq.ack_events()
            self.armed, self.due_ns = None, 0
        elif self.armed is NotifyFlags.NEXT_COMP and wcs and not self.missed:
            self.due_ns = self.due_ns or now_ns
        self.missed = self.missed and len(wcs) == POLLED
        late_ns = now_ns - self.due_ns if self.due_ns else 0
        assert late_ns <= self.period_ns, f"{wcs} came without an event, {late_ns} ns ago"
        return wcs


class Pool:
    """Receives and the memory that they fill: of a queue pair, or of a shared queue."""

    def __init__(self, pd: hca.PD, queue: hca.QP | hca.SRQ, draw: random.Random) -> None:
        self.queue, self.draw = queue, draw
        self.buffer = bytearray(LANDINGS * SLOT)
        self.mr = pd.reg_mr(self.buffer)
        self.free = list(range(LANDINGS))
        self.posted: deque[tuple[int, int]] = deque()  # (number, landing)
        self.limit = 0

    def post(self, number: int) -> None:
        if len(self.posted) >= LANDINGS - 2:
            return
        landing = self.free.pop(self.draw.randrange(len(self.free)))
        at = landing * SLOT
        self.queue.post_recv(hca.Recv(*pieces(self.mr, at, SLOT, self.draw), wr_id=number))
        self.posted.append((number, landing))

    def take(self, number: int, *, in_order: bool) -> bytes:
        """What a receive was filled with; those of a queue of its own complete in order."""
        at = next(i for i, (n, _) in enumerate(self.posted) if n == number)
        assert at == 0 or not in_order, "receives complete in order"
        landing = self.posted[at][1]
        del self.posted[at]
        self.free.append(landing)
        return bytes(self.buffer[landing * SLOT : (landing + 1) * SLOT])

    def forget(self) -> None:
        """All that is posted is gone."""
        self.free += [landing for _, landing in self.posted]
        self.posted.clear()


class Host:
    """A device, and what its connections share."""

    def __init__(self, device: hca.Device, draw: random.Random) -> None:
        self.device = device
        self.pd = device.alloc_pd()
        self.receives = Queue(device)
        self.xrcd = device.alloc_xrcd()
        size = {"max_wr": LANDINGS, "max_sge": SGES}
        self.srq = self.pd.create_srq(**size)
        self.xrc_srq = self.xrcd.create_srq(self.pd, self.receives.cq, **size)
        self.pools = {id(srq): Pool(self.pd, srq, draw) for srq in (self.srq, self.xrc_srq)}
        self.ends: dict[int, End] = {}


class End:
    """One end of a connection: what it asks, and what it is to receive."""

    qp: hca.QP

    def __init__(self, host: Host, kind: QPType, shared: bool, draw: random.Random) -> None:
        self.host, self.kind, self.shared, self.draw = host, kind, shared, draw
        self.asks, self.answers = kind is not QPType.XRC_RECV, kind is not QPType.XRC_SEND
        # What it sends from and reads into, what its peer reaches, and a word for atomics.
        self.buffer = bytearray(WORD_AT + 8)
        self.mr = host.pd.reg_mr(self.buffer, access=RIGHTS)
        self.mw = host.pd.alloc_mw(hca.MwType.TYPE_2)
        self.sends = Queue(host.device)
        srq = host.xrc_srq if kind is QPType.XRC_RECV else host.srq
        self.pool = host.pools[id(srq)] if shared else Pool(host.pd, srq, draw)
        # That it began with, the last ones: packets of connections that were short are still there.
        self.psns: deque[int] = deque(maxlen=4)
        # To come or not, by the immediate; of connections before as well.
        self.maybe: dict[int, tuple[str, bytes]] = {}
        self.make()

    def make(self) -> None:
        """Makes a queue pair."""
        host, options = self.host, {}
        if self.kind is QPType.XRC_RECV:
            self.qp = host.xrcd.create_qp()
        else:
            if self.kind in CONNECTED:
                options["recv_cq"] = host.receives.cq
                options |= {"srq": host.srq} if self.shared else {}
            self.qp = host.pd.create_qp(
                self.kind,
                send_cq=self.sends.cq,
                max_send_wr=2 * DEPTH,
                max_recv_wr=LANDINGS,
                max_send_sge=SGES,
                max_recv_sge=SGES,
                max_inline_data=INLINE,
                **options,
            )
        if not self.shared:
            self.pool.queue = self.qp
        host.ends[self.qp.qpn] = self
        self.begin()

    def begin(self) -> None:
        """Nothing of a connection is there."""
        self.buffer[WORD_AT:] = bytes(8)
        self.posted: deque[Asked] = deque()
        self.messages: deque[tuple[str, bytes]] = deque()  # To come.
        self.added = 0
        self.flushing = False  # The program took it to ERR.
        self.flushed = False  # Everything completes, unsignaled requests too.
        self.window: hca.RemoteMemory | None = None  # Bound, and not to be taken away yet.
        self.binding: hca.RemoteMemory | None = None
        self.paused = False
        self.drained = 0  # Events that have come.

    @property
    def awaits(self) -> bool:
        """Whether something is still to come of it."""
        return bool(self.messages) or any(e.signaled for e in self.posted)

    def has_window(self) -> bool:
        return self.binding is not None or self.mw.state is hca.KeyState.VALID

    def close(self) -> None:
        self.host.ends.pop(self.qp.qpn)
        self.qp.close()


def check(world: Fabric | RealHosts) -> None:
    """As the fabric does, but for what is said of connections that are gone."""
    try:
        world.check()
    except InvariantError as error:
        wrong = [line for line in str(error).splitlines() if "has not arrived" not in line]
        if wrong:
            raise InvariantError("\n".join(wrong)) from None


def any_options(end: End, peer: End, number: int, draw: random.Random) -> dict[str, Any]:
    """Options of a request."""
    options: dict[str, Any] = {"wr_id": number, "fence": draw.random() < 0.1}
    if end.kind is QPType.XRC_SEND:
        options["srqn"] = peer.host.xrc_srq.srqn
    return options
