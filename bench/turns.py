"""Contestants take turns in one run, with a reading of the probe before and after each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from bench.ratios import Turn, keeps

Measure = Callable[[], float]


def take_turns(
    probe: Measure,
    contestants: Mapping[str, Measure],
    rounds: int,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, list[Turn]]:
    """Measures until each contestant has `rounds` turns that count, or the time is over.

    Every contestant is measured once before, so that pages, caches and connections are warm, and
    that does not count. The reading after one turn is the one before the next. Who goes first
    changes from round to round.

    Args:
        probe: Reads the probe; each reading should be short.
        contestants: Name to measurement, in the probe's unit.
        rounds: Turns wanted of each.
        seconds: When to stop whatever was reached; the round under way is finished.
        clock: Seconds.
    """
    turns: dict[str, list[Turn]] = {name: [] for name in contestants}
    names = list(contestants)
    for measure in contestants.values():
        measure()
    end = clock() + seconds
    wanting = names
    while wanting and clock() < end:
        before = probe()
        for name in wanting:
            figure = contestants[name]()
            after = probe()
            turns[name].append(Turn(before, figure, after))
            before = after
        names.append(names.pop(0))
        wanting = [name for name in names if sum(map(keeps, turns[name])) < rounds]
    return turns
