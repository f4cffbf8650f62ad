"""What a question is given: how long it may take, and the way to compare."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bench.contestants import Contestants
from bench.findings import Finding, Goal, Unit
from bench.profile import sample
from bench.ratios import Turn, summarise
from bench.turns import Measure, take_turns
from bench.two_sides import SideError


@dataclass(frozen=True, slots=True)
class Contest:
    """How thorough a run is.

    Attributes:
        rounds: Turns that must count of each contestant.
        seconds: What one comparison may take.
        peers: Whether others than us take part.
    """

    rounds: int = 7
    seconds: float = 20.0
    peers: bool = True

    def compare(
        self,
        what: str,
        goal: Goal,
        probe: tuple[str, Measure],
        unit: Unit,
        among: Contestants,
        *,
        size: int = 0,
        picture: str = "",
        because: str = "",
    ) -> Finding:
        """Lets the contestants take turns; the first of them is the one that the goal is for.

        Where it misses the goal, it is looked at afterwards.
        """
        letter, read = probe
        ours, gone = next(iter(among.measures)), dict(among.absent)
        turns = take_turns(read, among.measures, self.rounds, self.seconds, withdrawn=gone)
        if ours in gone:
            raise SideError(gone[ours])
        summaries = {name: summarise(taken) for name, taken in turns.items() if name not in gone}
        absent = {name: why.strip().splitlines()[-1] for name, why in gone.items()}
        finding = Finding(
            what, goal, ours, letter, unit, summaries, absent, size, picture, because=because
        )
        if not finding.missed or not among.processes:
            return finding
        return replace(finding, profile=sample(among.processes, among.measures[ours]))

    def measure(
        self, what: str, goal: Goal, unit: Unit, measure: Measure, rounds: int = 0
    ) -> Finding:
        """Measures what no probe is a limit of, so many times, in the unit itself."""
        turns = [
            Turn(unit.scale, measure(), unit.scale)
            for _ in range(min(rounds, self.rounds) or self.rounds)
        ]
        summaries = {"softhca": summarise(turns)}
        return Finding(what, goal, "softhca", unit.name, unit, summaries)
