"""How many simulated packets does a fabric move in a second of one core?

    python bench/fabric_packets.py [--seconds 1.0] [--rounds 3]

64-byte WRITEs between two hosts, and of 64 hosts behind a switch, each to the next; with the trace
on, as by default, and off. The yardstick beside it is a heap that is pushed to and popped from once
per packet, in Python. Times are of the processor, so that a busy machine does not count. Prints the
best of the rounds.
"""

from __future__ import annotations

import argparse
import heapq
import time
from collections.abc import Callable

import softhca as hca
from softhca.testing import Fabric

BATCH = 64


class Stream:
    """WRITEs of 64 bytes from one host to another, the last of each batch signaled."""

    def __init__(self, a: hca.Device, b: hca.Device) -> None:
        self.buffers = (bytearray(64), bytearray(64))
        self.cq = a.create_cq(256)
        far_cq = b.create_cq(16)
        near_pd, far_pd = a.alloc_pd(), b.alloc_pd()
        self.near = near_pd.create_qp(
            hca.QPType.RC, send_cq=self.cq, recv_cq=self.cq, max_send_wr=2 * BATCH
        )
        self.far = far_pd.create_qp(hca.QPType.RC, send_cq=far_cq, recv_cq=far_cq)
        self.near.connect(self.far.info())
        self.far.connect(self.near.info())
        self.mrs = (near_pd.reg_mr(self.buffers[0]), far_pd.reg_mr(self.buffers[1]))
        quiet = hca.Write(self.mrs[0][:], remote=self.mrs[1].remote())
        last = hca.Write(self.mrs[0][:], remote=self.mrs[1].remote(), signaled=True)
        self.wrs = [quiet] * (BATCH - 1) + [last]

    def post(self) -> None:
        """Posts one batch."""
        self.near.post_send(self.wrs)


def packets_per_second(hosts: int, seconds: float, trace: bool) -> float:
    with Fabric(trace=trace, gbps=100) as fabric:
        if hosts == 2:
            devices = fabric.hosts(2)
            streams = [Stream(devices[0], devices[1])]
        else:
            devices = fabric.star(hosts)
            streams = [Stream(devices[i], devices[(i + 1) % hosts]) for i in range(hosts)]
        start = time.process_time()
        for stream in streams:
            stream.post()
            stream.post()
        while (spent := time.process_time() - start) < seconds:
            for stream in streams:
                for wc in stream.cq.poll(16):
                    wc.raise_for_status()
                    stream.post()
        return fabric.counters["packets"] / spent


def heap_per_second(seconds: float) -> float:
    heap: list[tuple[int, int]] = [(n, n) for n in range(128)]
    start = time.process_time()
    count = 0
    while (spent := time.process_time() - start) < seconds:
        for _ in range(1000):
            at, number = heapq.heappop(heap)
            heapq.heappush(heap, (at + 1000, number))
        count += 1000
    return count / spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    runs: dict[str, Callable[[], float]] = {
        "empty heap loop": lambda: heap_per_second(options.seconds),
        "2 hosts": lambda: packets_per_second(2, options.seconds, True),
        "2 hosts, no trace": lambda: packets_per_second(2, options.seconds, False),
        "64 hosts behind a switch": lambda: packets_per_second(64, options.seconds, True),
        "64 hosts, no trace": lambda: packets_per_second(64, options.seconds, False),
    }
    best = dict.fromkeys(runs, 0.0)
    for _ in range(options.rounds):
        for name, run in runs.items():
            best[name] = max(best[name], run())
    for name, figure in best.items():
        print(f"{name:26} {figure:12,.0f} a second")


if __name__ == "__main__":
    main()
