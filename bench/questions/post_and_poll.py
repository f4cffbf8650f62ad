"""What do posting and polling cost in one process, in empty calls of an extension?"""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.build import probe_module
from bench.contest import Contest
from bench.findings import NANOSECONDS, Better, Finding, Goal
from bench.softhca_side import OwnPair

TITLE = "post + poll, in one process, 64 B WRITE"

COUNT = 5000


def probe_c() -> float:
    """Seconds of an empty post and poll."""
    empty = probe_module("empty_calls").Empty()
    post, poll = empty.post, empty.poll
    start = time.perf_counter()
    for _ in range(COUNT):
        post(1)
        while not poll():
            pass
    return (time.perf_counter() - start) / COUNT


def ask(contest: Contest) -> Iterator[Finding]:
    """Compares a WRITE to the same adapter with probe c."""
    with OwnPair() as pair:
        yield contest.compare(
            TITLE,
            Goal(Better.LESS, 3, 2.2),
            ("c", probe_c),
            NANOSECONDS,
            {"softhca": lambda: pair.reused(COUNT)},
        )
        yield contest.compare(
            "the same with one object per request and completion",
            Goal(Better.LESS, 5, 4),
            ("c", probe_c),
            NANOSECONDS,
            {"softhca": lambda: pair.objects(COUNT)},
        )
