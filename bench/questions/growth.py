"""What do many queue pairs and regions cost, and what does an adapter cost to open?"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator

from bench.contest import Contest
from bench.contestants import Contestants
from bench.fast_calls import open_device
from bench.findings import KIBIBYTES, MICROSECONDS, MILLISECONDS, SECONDS, Better, Finding, Goal
from bench.two_sides import TwoSides

TITLE = "how it grows"

QPS = 1000
REGIONS = 10_000
MOST_QPS = 10_000
MESSAGES = 2000
WHY_IN_TURN = """\
Nothing takes longer by itself: each message finds its queue pair, its region, their Python
objects and the page of its payload in no near cache, on both sides, and each function of the
way waits a little. `Neighbourhood::has_work` is waiting for the other side, which waits for its
memory."""


class Crowd(TwoSides):
    """Two processes with many queue pairs."""

    def __init__(self) -> None:
        super().__init__("bench.crowd_side")

    def connect(self, count: int) -> float:
        """Creates and connects so many, both sides at once; the seconds that the slower took."""
        created = self.both("create", count)
        near, far = self.both("infos")
        joined = self.each("join_all", (far,), (near,))
        return float(max(created) + max(joined))

    def message(self, qps: int, regions: int, first: int = 0) -> float:
        """Seconds of half a round trip."""
        return self.measured("go_round", first, qps, regions, MESSAGES)


def open_once() -> float:
    """Seconds until an adapter is open."""
    start = time.perf_counter()
    device = open_device()
    spent = time.perf_counter() - start
    device.close()
    gc.collect()
    return spent


def time_of_many() -> float:
    """Seconds for ten thousand."""
    with Crowd() as crowd:
        return crowd.connect(MOST_QPS)


def memory_of_one() -> float:
    """Bytes per queue pair."""
    with Crowd() as crowd:
        before = crowd.tell(0, "resident")
        crowd.connect(QPS)
        return float(crowd.tell(0, "resident") - before) / QPS


def messages(contest: Contest) -> Iterator[Finding]:
    """A message among many, against one with nothing else in its processes."""
    with Crowd() as one, Crowd() as many, Contestants(False) as among:
        for crowd, qps, regions in ((one, 1, 1), (many, QPS, REGIONS)):
            crowd.connect(qps)
            crowd.both("register", regions)
        alone = ("of one", lambda: one.message(1, 1))
        goal = Goal(Better.LESS, 1.3)
        among.ours("softhca", lambda: many.message(1, 1), many.processes)
        what = f"a message where {QPS:,} QPs are connected and {REGIONS:,} regions registered"
        yield contest.compare(what, goal, alone, MICROSECONDS, among)
        among.clear()
        among.ours("softhca", lambda: many.message(QPS, REGIONS), many.processes)
        what = f"a message, through {QPS:,} QPs and {REGIONS:,} regions in turn"
        yield contest.compare(what, goal, alone, MICROSECONDS, among, because=WHY_IN_TURN)


def ask(contest: Contest) -> Iterator[Finding]:
    """Compares with one, and otherwise measures as it is."""
    yield from messages(contest)
    goal = Goal(Better.LESS, 16)
    yield contest.measure("memory of an idle connected QP", goal, KIBIBYTES, memory_of_one, 3)
    yield contest.measure("opening an adapter", Goal(Better.LESS, 20), MILLISECONDS, open_once)
    what = f"{MOST_QPS:,} QPs created and connected"
    yield contest.measure(what, Goal(Better.LESS, 10), SECONDS, time_of_many, 1)
