"""What do posting and polling cost in one process, in empty calls of an extension?"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial

from bench.build import probe_module
from bench.contest import Contest
from bench.contestants import Contestants
from bench.findings import NANOSECONDS, Better, Finding, Goal
from bench.own_pair import OwnPair
from bench.peers import mpi

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
    probe = ("c", probe_c)
    own = {"the process": os.getpid()}
    with OwnPair() as pair, Contestants(contest.peers) as among:
        among.ours("softhca", lambda: pair.reused(COUNT), own)
        for name in ("Open MPI", "MPICH"):
            among.alone(f"mpi4py put + flush, {name}", partial(mpi.sides, name), COUNT)
        yield contest.compare(TITLE, Goal(Better.LESS, 3, 2.2), probe, NANOSECONDS, among)
        among.clear()
        among.ours("softhca", lambda: pair.objects(COUNT), own)
        what = "the same with one object per request and completion"
        yield contest.compare(what, Goal(Better.LESS, 5, 4), probe, NANOSECONDS, among)
