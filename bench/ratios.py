"""What is made of figures that were measured between two readings of a probe.

A figure says little on a machine that others use too, but its ratio to a probe of the same moment
does, as long as the probe itself stands still: where it reads otherwise after the figure than
before, the machine changed meanwhile, and the turn is thrown away.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# How far the probe's two readings may be apart, as a part of the smaller.
MOST_DRIFT = 0.1


@dataclass(frozen=True, slots=True)
class Turn:
    """A figure, and what the probe read right before and right after; all in the probe's unit."""

    before: float
    figure: float
    after: float

    @property
    def drift(self) -> float:
        """How far the machine moved during the turn, as a part of the smaller reading."""
        return abs(self.after - self.before) / min(self.before, self.after)

    @property
    def ratio(self) -> float:
        """The figure in probes."""
        return self.figure / self.probe

    @property
    def probe(self) -> float:
        """What the probe read beside the figure."""
        return (self.before + self.after) / 2


@dataclass(frozen=True, slots=True)
class Summary:
    """What the turns of one contestant say together.

    Attributes:
        median: Of the ratios that were kept.
        low: Their lower quartile.
        high: Their upper quartile.
        figure: Median of the figures themselves, in the probe's unit.
        probe: Median of what the probe read beside them.
        kept: Turns that counted.
        thrown: Turns during which the machine changed.
    """

    median: float
    low: float
    high: float
    figure: float
    probe: float
    kept: int
    thrown: int


def keeps(turn: Turn, most_drift: float = MOST_DRIFT) -> bool:
    """Whether the machine stood still during the turn."""
    return turn.drift <= most_drift


def summarise(turns: Sequence[Turn], most_drift: float = MOST_DRIFT) -> Summary | None:
    """Returns what the kept turns say; None if none was kept."""
    kept = [turn for turn in turns if keeps(turn, most_drift)]
    if not kept:
        return None
    ratios = [turn.ratio for turn in kept]
    low, middle, high = quartiles(ratios)
    figure = statistics.median(turn.figure for turn in kept)
    probe = statistics.median(turn.probe for turn in kept)
    return Summary(middle, low, high, figure, probe, len(kept), len(turns) - len(kept))


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile; of one value, that value three times."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high
