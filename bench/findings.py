"""What a question finds out, and whether that is what was wanted."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from bench.profile import Profile
from bench.ratios import Summary


class Better(Enum):
    """Which way is up."""

    LESS = "≤"
    MORE = "≥"


@dataclass(frozen=True, slots=True)
class Goal:
    """What is wanted of us, in probes.

    Attributes:
        better: Which way is up.
        goal: What is promised; None if only the figures matter.
        stretch: What would be finer still, if anything.
    """

    better: Better
    goal: float | None = None
    stretch: float | None = None

    def verdict(self, ratio: float) -> str:
        """Met, met with the stretch, or by how many percent it was missed."""
        if self.goal is None:
            return ""
        if self.stretch is not None and self._reached(ratio, self.stretch):
            return "met, stretch too"
        if self._reached(ratio, self.goal):
            return "met"
        return f"missed by {100 * abs(ratio - self.goal) / self.goal:.0f} %"

    def _reached(self, ratio: float, wanted: float) -> bool:
        return ratio <= wanted if self.better is Better.LESS else ratio >= wanted


@dataclass(frozen=True, slots=True)
class Unit:
    """How to print figures: in what, and how many base units that is."""

    name: str
    scale: float


NANOSECONDS = Unit("ns", 1e-9)
MICROSECONDS = Unit("µs", 1e-6)
MILLISECONDS = Unit("ms", 1e-3)
SECONDS = Unit("s", 1.0)
MILLIONS = Unit("M/s", 1e6)
GIGABYTES = Unit("GB/s", 1e9)
KIBIBYTES = Unit("KiB", 1024.0)


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of what had to be shown: us against the probe, and the peers beside.

    Attributes:
        what: What was measured.
        goal: What was wanted of `ours`.
        ours: Which contestant the goal is for.
        probe: Letter of the probe; empty where figures are absolute.
        unit: Of the figures.
        summaries: By contestant, ours first; None where no turn could be kept.
        absent: Contestants that are not here, and why.
        size: Bytes of a message.
        picture: The plot that it is a point of, if any.
        profile: Where the time of ours goes, if the goal was missed.
        because: What a miss was traced to, in words.
        doubt: Why the ratio says little, if it does (bench/steadiness.py).
    """

    what: str
    goal: Goal
    ours: str
    probe: str
    unit: Unit
    summaries: dict[str, Summary | None]
    absent: dict[str, str] = field(default_factory=dict)
    size: int = 0
    picture: str = ""
    profile: Profile | None = None
    because: str = ""
    doubt: str = ""

    @property
    def verdict(self) -> str:
        """Whether we reached the goal."""
        summary = self.summaries.get(self.ours)
        if summary is None:
            return "not measured"
        return self.goal.verdict(summary.median)

    @property
    def judgement(self) -> str:
        """The verdict, and what is to be said against it."""
        return f"{self.verdict}; {self.doubt}" if self.doubt else self.verdict

    @property
    def missed(self) -> bool:
        """Whether it was measured, and we did not reach the goal."""
        return self.verdict.startswith("missed")
