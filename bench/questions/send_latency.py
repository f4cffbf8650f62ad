"""How long does a small SEND take to the receiver's completion, between two processes?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench.contest import Contest
from bench.contestants import Contestants
from bench.findings import NANOSECONDS, Better, Finding, Goal
from bench.peers import libfabric, mpi, zmq
from bench.peers.python import PythonSides
from bench.probes import probe
from bench.softhca_sides import SofthcaSides

TITLE = "SEND to completion, half round trip, shared memory, 64 B"

BYTES = 64
COUNT = 20_000
# Of those that take tens of microseconds.
SLOW_COUNT = 2000


def add_peers(among: Contestants, size: int) -> None:
    """Those that move small messages within a host."""
    for name in ("Open MPI", "MPICH"):
        among.sides(f"mpi4py, {name}", partial(mpi.sides, name), "ping_pong", size, COUNT)
    memory = "shared_memory in pure Python"
    among.sides(memory, lambda: PythonSides("memory"), "ping_pong", size, COUNT)
    pipe = "multiprocessing Pipe"
    among.sides(pipe, lambda: PythonSides("pipe"), "ping_pong", size, SLOW_COUNT)
    among.sides("pyzmq, ipc", lambda: zmq.sides("ipc"), "ping_pong", size, SLOW_COUNT)
    among.peer("libfabric shm, in C", lambda: libfabric.measure_latency("SHARED_MEMORY", size))


def ask(contest: Contest) -> Iterator[Finding]:
    """Compares with a cache line's way between the two processors."""
    with SofthcaSides() as sides, Contestants(contest.peers) as among:
        sides.connect("latency", BYTES)
        among.ours("softhca", lambda: sides.ping_pong("latency", COUNT), sides.processes)
        add_peers(among, BYTES)
        goal = Goal(Better.LESS, 4, 3.4)
        yield contest.compare(TITLE, goal, probe("g"), NANOSECONDS, among, size=BYTES)
