"""How many small SENDs a second go from one process to another of the host?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench.contest import Contest
from bench.contestants import Contestants
from bench.findings import MILLIONS, Better, Finding, Goal
from bench.peers import mpi, ucx, zmq
from bench.probes import probe
from bench.softhca_sides import SofthcaSides

TITLE = "rate at 64 B, shared memory"

BYTES = 64
COUNT = 200_000
WHY_LIST = """\
Both sides are busy to the end. The ring that the probe is has no more to do than
`Neighbour::fetch`; the other functions are what a message is besides: its receive, its region
and its rights, the copy, the completion, and a record of NumPy for it."""


def ask(contest: Contest) -> Iterator[Finding]:
    """Compares with a ring in C."""
    ring = probe("r")
    with SofthcaSides() as sides, Contestants(contest.peers) as among:
        sides.connect("rate", BYTES)
        among.ours("softhca", lambda: sides.rate("rate", COUNT, False), sides.processes)
        for name in ("Open MPI", "MPICH"):
            among.sides(f"mpi4py, {name}", partial(mpi.sides, name), "rate", BYTES, COUNT)
        among.sides("pyzmq, ipc", partial(zmq.sides, "ipc"), "rate", BYTES, COUNT)
        goal = Goal(Better.MORE, 0.2, 0.3)
        yield contest.compare(f"{TITLE}, one call each", goal, ring, MILLIONS, among, size=BYTES)
        among.clear()
        among.ours("softhca", lambda: sides.rate("rate", COUNT, True), sides.processes)
        among.peer("UCX, in C", lambda: ucx.measure_rate("SHARED_MEMORY", BYTES))
        goal = Goal(Better.MORE, 0.8, 1.2)
        what = f"{TITLE}, posted as a list"
        yield contest.compare(what, goal, ring, MILLIONS, among, size=BYTES, because=WHY_LIST)
