"""How fast do bytes move into memory of the caller's own, within a host?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench.contest import Contest
from bench.contestants import Contestants
from bench.findings import GIGABYTES, Better, Finding, Goal
from bench.peers import mpi, ucx
from bench.questions.bandwidth import SIZES, many, window
from bench.softhca_sides import SofthcaSides

TITLE = "into memory of the caller's own"
WHY = """\
The side that copies is in process_vm_readv nearly all of its time (`kernel`), as the probe is;
but it copies in pieces of 1 MiB, so that nobody waits long for the adapter, and beside a peer
that runs."""


def compare(contest: Contest, sides: SofthcaSides, op: str, name: str) -> Finding:
    """One operation at one size."""
    size = SIZES[name]
    key = f"{op} {size}"
    sides.connect(key, size, "own", op)
    with Contestants(contest.peers) as among:
        stream = partial(sides.stream, key, op, many(size), window(size))
        among.ours("softhca", stream, sides.processes)
        if op == "SEND":
            # Those that send from and into memory of a program's own, not into a window.
            among.peer("UCX, in C", lambda: ucx.measure_bandwidth("SHARED_MEMORY", op, size))
            for mpi_name in ("Open MPI", "MPICH"):
                start = partial(mpi.sides, mpi_name)
                among.sides(f"mpi4py, {mpi_name}", start, "stream", op, size, many(size))
        what, goal = f"{op} {TITLE}, {name}", Goal(Better.MORE, 0.95)
        limit = partial(sides.bare_copies, key, op, many(size))
        finding = contest.compare(
            what, goal, ("v", limit), GIGABYTES, among, size=size, because=WHY
        )
    sides.verify(key, op)
    return finding


def ask(contest: Contest) -> Iterator[Finding]:
    """Compares with process_vm_readv of the size, between the same buffers."""
    with SofthcaSides() as sides:
        for op in ("WRITE", "READ", "SEND"):
            for name in SIZES:
                yield compare(contest, sides, op, name)
