"""How fast does SEND move bytes of an allocated region into one, within a host?"""

from __future__ import annotations

from collections.abc import Iterator

from bench.contest import Contest
from bench.findings import Better, Finding, Goal
from bench.questions.bandwidth import SIZES, compare
from bench.softhca_sides import SofthcaSides

TITLE = "SEND/RECV, allocated region"

GOALS = {"64 KiB": 0.75, "1 MiB": 0.85, "16 MiB": 0.75}


def ask(contest: Contest) -> Iterator[Finding]:
    """Compares with memcpy of the size."""
    with SofthcaSides() as sides:
        for name, size in SIZES.items():
            goal = Goal(Better.MORE, GOALS[name], 0.9)
            yield compare(contest, sides, f"{TITLE}, {name}", "SEND", size, goal)
