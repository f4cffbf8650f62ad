"""How fast do WRITE and READ move bytes of an allocated region, within a host?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench.contest import Contest
from bench.contestants import Contestants
from bench.findings import GIGABYTES, Better, Finding, Goal
from bench.peers import mpi, ucx
from bench.probes import probe
from bench.softhca_sides import SofthcaSides

TITLE = "WRITE and READ, allocated region"

KIB, MIB = 1 << 10, 1 << 20
SIZES = {"64 KiB": 64 * KIB, "1 MiB": MIB, "16 MiB": 16 * MIB}
GOALS = {"64 KiB": 0.85, "1 MiB": 0.95, "16 MiB": 0.8}
WHY = {
    "WRITE": """\
Who owns the memory copies, after it has looked at the rights. What is not `copy of payload` is
asking for the next message and telling of the last, the same for each, so that it shows where
the copy itself takes half a microsecond.""",
    "READ": """\
Who asks for the bytes copies them, between posting and polling, which are Python on the same
processor; the other side has almost nothing to do, and looks whether there is more.""",
}
# About what one measurement shall move.
BYTES = 256 * MIB


def many(size: int) -> int:
    """Messages of a measurement."""
    return max(BYTES // size, 8)


def window(size: int) -> int:
    """Messages under way."""
    return max(2, min(16, 4 * MIB // size))


def compare(
    contest: Contest, sides: SofthcaSides, what: str, op: str, size: int, goal: Goal
) -> Finding:
    """One operation at one size, against memcpy."""
    key = f"{op} {size}"
    sides.connect(key, size, "allocated", op)
    with Contestants(contest.peers) as among:
        stream = partial(sides.stream, key, op, many(size), window(size))
        among.ours("softhca", stream, sides.processes)
        among.peer("UCX, in C", lambda: ucx.measure_bandwidth("SHARED_MEMORY", op, size))
        for name in ("Open MPI", "MPICH"):
            start = partial(mpi.sides, name)
            among.sides(f"mpi4py, {name}", start, "stream", op, size, many(size))
        finding = contest.compare(
            what, goal, probe("m", size), GIGABYTES, among, size=size, because=WHY.get(op, "")
        )
    sides.verify(key, op)
    return finding


def ask(contest: Contest) -> Iterator[Finding]:
    """Compares with memcpy of the size."""
    with SofthcaSides() as sides:
        for op in ("WRITE", "READ"):
            for name, size in SIZES.items():
                goal = Goal(Better.MORE, GOALS[name])
                yield compare(contest, sides, f"{op}, allocated region, {name}", op, size, goal)
