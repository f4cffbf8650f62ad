"""A queue on a completion channel, and its events."""

from __future__ import annotations

import select

import softhca as hca
from softhca import NotifyFlags, Recv, Send

from .hosts import Pair

NEXT, SOLICITED = NotifyFlags.NEXT_COMP, NotifyFlags.SOLICITED
REPORT = NotifyFlags.REPORT_MISSED_EVENTS


class Receiver:
    """A queue on a channel, and a peer that fills it."""

    def __init__(self, pair: Pair, channel: hca.CompChannel | None, cqe: int = 64) -> None:
        self._pair = pair
        self.cq = pair.a.keep(pair.a.device.create_cq(cqe, channel=channel))
        self.qp = pair.a.qp(send_cq=self.cq, recv_cq=self.cq, max_recv_wr=64)
        self.peer = pair.b.qp(max_send_wr=64)
        self.qp.connect(self.peer.info())
        self.peer.connect(self.qp.info())

    def receive(self, count: int = 1, *, solicited: bool = False) -> None:
        """Makes so many messages arrive."""
        self.qp.post_recv([Recv() for _ in range(count)])
        sends = [Send(solicited=solicited) for _ in range(count - 1)]
        self.peer.post_send([*sends, Send(solicited=solicited, signaled=True)])
        self._pair.completion(self._pair.b)

    def fail(self) -> None:
        """Flushes a receive."""
        self.qp.post_recv(Recv())
        self.qp.modify(qp_state=hca.QPState.ERR)


def readable(fd: int) -> bool:
    """Whether a descriptor is readable now."""
    return bool(select.select([fd], [], [], 0)[0])


def events(channel: hca.CompChannel) -> list[hca.CQ]:
    """Takes and acknowledges all events that wait."""
    taken = []
    while (cq := channel.poll_event()) is not None:
        cq.ack_events()
        taken.append(cq)
    return taken
