"""A random program on a random fabric, from a seed: prints what tells two runs apart.

Run it with `python -m simulation.random_run FIRST COUNT`, with tests/ on the path.
"""

from __future__ import annotations

import asyncio
import random
import sys
from typing import Any

import softhca as hca
from softhca.testing import Fabric

from .ends import End, connected


def build(fabric: Fabric, draw: random.Random) -> list[tuple[End, End]]:
    """Hosts, links, faults, connections."""
    count = draw.randint(2, 5)
    if draw.random() < 0.5:
        devices = fabric.hosts(count)
    else:
        devices = fabric.star(
            count,
            gbps=draw.choice([1, 10, 100]),
            latency_ns=draw.randrange(2000),
            queue_bytes=draw.choice([None, 20_000, 200_000]),
        )
    for word in ("drop", "duplicate", "reorder", "corrupt"):
        if draw.random() < 0.4:
            getattr(fabric.faults, word)(probability=draw.choice([0.005, 0.05]))
    if draw.random() < 0.3:
        fabric.faults.delay((0, 100_000), probability=0.05)
    pairs = []
    for _ in range(draw.randint(1, 4)):
        a, b = draw.sample(devices, 2)
        timeout, timer = draw.choice([8, 12]), draw.choice([1, 5])
        pairs.append(connected(fabric, a, b, 1 << 15, timeout=timeout, min_rnr_timer=timer))
    return pairs


def program(near: End, far: End, draw: random.Random, results: list[Any]) -> Any:
    """Sends, writes, reads and atomics, and looks at what came."""

    def run() -> None:
        for _ in range(draw.randint(1, 6)):
            size = draw.choice([0, 1, 100, 5000, 20_000])
            kind = draw.choice(["send", "write", "read", "atomic"])
            if kind == "send":
                far.qp.post_recv(hca.Recv(far.mr[:size]))
                near.qp.post_send(hca.Send(near.mr[:size], signaled=True))
            elif kind == "write":
                near.qp.post_send(
                    hca.Write(near.mr[:size], remote=far.mr.remote()[:size], signaled=True)
                )
            elif kind == "read":
                near.qp.post_send(
                    hca.Read(near.mr[:size], remote=far.mr.remote()[:size], signaled=True)
                )
            else:
                near.qp.post_send(
                    hca.FetchAdd(near.mr[:8], remote=far.mr.remote()[:8], add=7, signaled=True)
                )
            wc = near.next()
            results.append((wc.status, wc.timestamp_ns))
            if not wc.ok:
                break

    return run


def tasks(pairs: list[tuple[End, End]], draw: random.Random, results: list[Any]) -> Any:
    """The same with tasks."""

    async def one(near: End, far: End, sizes: list[int]) -> None:
        for size in sizes:
            wc = await near.qp.write(near.mr[:size], far.mr.remote()[:size])
            results.append((wc.status, wc.timestamp_ns))
            await asyncio.sleep(1e-6)

    async def main() -> None:
        await asyncio.gather(
            *(
                one(near, far, [draw.randrange(10_000) for _ in range(draw.randint(1, 5))])
                for near, far in pairs
            )
        )

    return main()


def digest(seed: int) -> str:
    """Runs a seed."""
    draw = random.Random(seed)
    jitter_ns = draw.choice([0, 0, 3000])
    with Fabric(seed=seed, jitter_ns=jitter_ns) as fabric:
        pairs = build(fabric, draw)
        results: list[Any] = []
        if draw.random() < 0.5:
            fabric.run(*(program(near, far, draw, results) for near, far in pairs))
        else:
            fabric.run_async(tasks(pairs, draw, results))
        fabric.run_for(0.001)
        counters = fabric.counters
        told = [fabric.trace.digest, str(len(fabric.trace)), str(fabric.now_ns)]
        told.append(str(hash(tuple(int(x) for pair in results for x in pair)) & 0xFFFFFFFF))
        return " ".join([str(seed), *told, str(counters["packets"]), str(counters["lost"])])


if __name__ == "__main__":
    first, count = int(sys.argv[1]), int(sys.argv[2])
    for seed in range(first, first + count):
        print(digest(seed))
