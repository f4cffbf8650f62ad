"""Incast: eight senders, one receiver, and a switch between them, without and with DCQCN.

All write at once to one host. The switch has room for 400 kB in front of its link; what is beyond
is lost, and a go-back-N transport sends all behind it again. With DCQCN the switch marks packets
long before that, the receiver tells the senders, and they slow down.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from softhca import Dcqcn, Mtu, Write
from softhca.testing import End, Fabric

GBPS = 10.0
BLOCK = 16 * 1024


class Incast(NamedTuple):
    """What was seen in the second half of the time, when rates have settled."""

    shares: list[int]  # Bytes that each sender brought over.
    lost: int  # Packets that the switch had no room for.
    waiting: float  # Bytes that waited at the switch on average.
    gbps: float  # Goodput of all.

    @property
    def fairness(self) -> float:
        """Jain's index: 1 where all have the same, 1/n where one has everything."""
        total = sum(self.shares)
        return total * total / (len(self.shares) * sum(share * share for share in self.shares))


def incast(dcqcn: Dcqcn | None, senders: int = 8, seconds: float = 0.02) -> Incast:
    """Lets all write at once, as fast as they may, for some virtual time."""
    end_ns = seconds * 1e9
    done = [0] * senders
    with Fabric(trace=False, mtu=1024) as fabric:
        receiver, *others = fabric.star(
            senders + 1,
            dcqcn=dcqcn,
            gbps=GBPS,
            queue_bytes=400_000,
            mark_bytes=(5_000, 200_000),
            mark_probability=0.1,
        )
        narrow = fabric.links[0]

        def send(number: int, near: End, far: End) -> None:
            write = Write(near.mr[:], remote=far.mr.remote(), signaled=True)
            near.qp.post_send([write] * 8)
            while fabric.now_ns < end_ns:
                near.next().raise_for_status()
                done[number] += BLOCK
                near.qp.post_send(write)

        def watch() -> Incast:
            fabric.sleep(seconds / 2)
            before, lost = list(done), narrow.counters["b to a"]["overflows"]
            waiting = []
            while fabric.now_ns < end_ns:
                waiting.append(narrow.counters["b to a"]["queued_bytes"])
                fabric.sleep(10e-6)
            shares = [late - early for late, early in zip(done, before, strict=True)]
            lost = narrow.counters["b to a"]["overflows"] - lost
            goodput = sum(shares) * 8 / (seconds / 2) / 1e9
            return Incast(shares, lost, sum(waiting) / len(waiting), goodput)

        programs = []
        for number, device in enumerate(others):
            near, far = fabric.keep(End(device, BLOCK)), fabric.keep(End(receiver, BLOCK))
            near.qp.connect(far.qp.info(), path_mtu=Mtu.MTU_1024, timeout=10)
            far.qp.connect(near.qp.info(), path_mtu=Mtu.MTU_1024, timeout=10)
            programs.append(partial(send, number, near, far))
        seen: Incast = fabric.run(watch, *programs)[0]
        return seen


if __name__ == "__main__":
    for word, dcqcn in (("without", None), ("with", Dcqcn(gbps=GBPS))):
        seen = incast(dcqcn)
        print(
            f"{word} DCQCN: {seen.lost} packets lost, {seen.waiting / 1000:.0f} kB wait at the "
            f"switch, {seen.gbps:.1f} Gb/s in all, fairness {seen.fairness:.3f}"
        )
