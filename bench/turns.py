"""Contestants take turns in one run, with a reading of the probe before and after each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from bench.ratios import MOST_DRIFT, Turn, keeps

Measure = Callable[[], float]


class WithdrawnError(Exception):
    """A contestant cannot be measured, or no longer; says why."""


def take_turns(
    probe: Measure,
    contestants: Mapping[str, Measure],
    rounds: int,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    withdrawn: dict[str, str] | None = None,
    most_drift: float = MOST_DRIFT,
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
        withdrawn: Takes the reasons of contestants that raised WithdrawnError, which then take no
            further turns; without it the error goes to the caller.
        most_drift: See `ratios.keeps`.
    """
    gone: dict[str, str] = {}
    turns: dict[str, list[Turn]] = {name: [] for name in contestants}
    names = list(contestants)

    def measure(name: str) -> float | None:
        try:
            return contestants[name]()
        except WithdrawnError as error:
            if withdrawn is None:
                raise
            gone[name] = str(error)
            return None

    def kept(name: str) -> int:
        return sum(keeps(turn, most_drift) for turn in turns[name])

    for name in names:
        measure(name)
    end = clock() + seconds
    wanting = [name for name in names if name not in gone]
    while wanting and clock() < end:
        before = probe()
        for name in wanting:
            figure = measure(name)
            if figure is None:
                continue
            after = probe()
            turns[name].append(Turn(before, figure, after))
            before = after
        names.append(names.pop(0))
        wanting = [name for name in names if name not in gone and kept(name) < rounds]
    if withdrawn is not None:
        withdrawn.update(gone)
    return turns
