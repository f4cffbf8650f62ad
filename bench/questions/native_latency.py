"""How long does a small SEND take between two programs in C++, without Python?"""

from __future__ import annotations

from collections.abc import Iterator

from bench.build import native_program
from bench.contest import Contest
from bench.contestants import Contestants
from bench.findings import NANOSECONDS, Better, Finding, Goal
from bench.peers import ucx
from bench.probes import Probe, probe

TITLE = "the same, native caller (C++ over the adapter)"

BYTES = 64
COUNT = 20_000


def ask(contest: Contest) -> Iterator[Finding]:
    """Compares with a cache line's way between the two processors."""
    program = Probe(native_program("round_trip"), str(BYTES), "shared")

    def measure() -> float:
        program.read(BYTES, COUNT)  # Wakes the processors up, as UCX's warm-up does.
        return program.read(BYTES, COUNT)

    with Contestants(contest.peers) as among:
        among.ours("softhca", measure, program.processes)
        among.peer("UCX, in C", lambda: ucx.measure_latency("SHARED_MEMORY", BYTES))
        goal = Goal(Better.LESS, 2, 1.6)
        yield contest.compare(TITLE, goal, probe("g"), NANOSECONDS, among, size=BYTES)
