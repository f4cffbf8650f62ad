"""A process that shares memory with ours is killed while both copy: ours goes on.

`python -m tests.two_processes.test_killed_neighbours SEED COUNT` does it more often.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.two_processes.busy_neighbour import Side

import softhca as hca

PATIENCE_S = 30
# How often in a row a peer may be given up before it is killed, because it got no processor.
TRIALS = 10


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def survive(dev: hca.Device, seed: int) -> None:
    """Connects to a process, kills it soon, and is told that it is gone."""
    for trial in range(TRIALS):
        if kill_one(dev, random.Random(f"{seed} {trial}")):
            return
    raise AssertionError(f"{TRIALS} peers in a row were given up while they lived")


def kill_one(dev: hca.Device, rng: random.Random) -> bool:
    """Whether a process was killed before it was given up."""
    side = Side(dev, rng)
    peer = subprocess.Popen(
        [sys.executable, "-m", "tests.two_processes.busy_neighbour", str(rng.random())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert peer.stdin is not None
    assert peer.stdout is not None
    try:
        side.connect(peer.stdout.readline())
        print(side.card(), file=peer.stdin, flush=True)
        assert peer.stdout.readline() == "connected\n"
        until = rng.randrange(1, 200)
        done = 0
        while True:
            side.post()
            if done == until:
                os.kill(peer.pid, signal.SIGKILL)
            while not (completions := side.cq.poll(1)):
                pass
            if completions[0].status != hca.WcStatus.SUCCESS:
                break
            done += 1
        assert completions[0].status == hca.WcStatus.RETRY_EXC_ERR
    finally:
        peer.kill()
        peer.wait()
        peer.stdin.close()
        peer.stdout.close()
    for held in (side.qp, side.mr, side.cq, side.pd):
        held.close()
    return done >= until


def survive_many(seed: int, count: int) -> None:
    with hca.open() as dev:
        survive(dev, seed)
        before = descriptors()
        for number in range(1, count):
            survive(dev, seed + number)
        # What leads to a peer goes when the peer has gone; the adapter's thread sees to that.
        deadline = time.monotonic() + PATIENCE_S
        while descriptors() > before:
            assert time.monotonic() < deadline, "descriptors are left"


def test_killed_at_random() -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    survive_many(seed, 4)


if __name__ == "__main__":
    survive_many(int(sys.argv[1]), int(sys.argv[2]))
