"""The statistics of the benches: what counts, what is thrown away, and who takes turns when."""

from __future__ import annotations

import pytest
from bench.findings import Better, Goal
from bench.ratios import Turn, keeps, quartiles, summarise
from bench.turns import WithdrawnError, take_turns


def test_a_turn_is_measured_in_the_probe_of_its_own_time():
    turn = Turn(before=1.9, figure=8.0, after=2.1)
    assert turn.ratio == pytest.approx(4.0)
    assert turn.drift == pytest.approx(0.2 / 1.9)


@pytest.mark.parametrize(("after", "kept"), [(1.0, True), (1.1, True), (1.2, False), (0.8, False)])
def test_a_machine_that_changed_throws_the_turn_away(after, kept):
    assert keeps(Turn(1.0, 5.0, after), most_drift=0.1000001) is kept


def test_the_median_is_of_what_was_kept():
    good = [Turn(1.0, figure, 1.0) for figure in (2.0, 3.0, 4.0, 5.0, 100.0)]
    bad = [Turn(1.0, 1000.0, 2.0), Turn(3.0, 1000.0, 1.0)]
    summary = summarise([bad[0], *good, bad[1]])
    assert summary is not None
    assert (summary.low, summary.median, summary.high) == (3.0, 4.0, 5.0)
    assert (summary.figure, summary.probe, summary.kept, summary.thrown) == (4.0, 1.0, 5, 2)


def test_nothing_kept_says_nothing():
    assert summarise([Turn(1.0, 1.0, 2.0)]) is None
    assert summarise([]) is None


def test_quartiles_of_one_value():
    assert quartiles([7.0]) == (7.0, 7.0, 7.0)


@pytest.mark.parametrize(
    ("better", "ratio", "verdict"),
    [
        (Better.LESS, 2.0, "met, stretch too"),
        (Better.LESS, 2.5, "met"),
        (Better.LESS, 6.0, "missed by 100 %"),
        (Better.MORE, 3.0, "met, stretch too"),
        (Better.MORE, 1.5, "missed by 50 %"),
    ],
)
def test_verdicts(better, ratio, verdict):
    stretch = 2.2 if better is Better.LESS else 3.0
    assert Goal(better, 3.0, stretch).verdict(ratio) == verdict


def test_nothing_is_wanted():
    assert Goal(Better.LESS).verdict(1.0) == ""


class Machine:
    """A clock that goes on by one with each measurement, and a log of who measured."""

    def __init__(self, readings: list[float]) -> None:
        self.now = 0.0
        self.log: list[str] = []
        self.readings = iter(readings)

    def clock(self) -> float:
        return self.now

    def probe(self) -> float:
        self.now += 1
        return next(self.readings)

    def contestant(self, name: str):
        def measure() -> float:
            self.now += 1
            self.log.append(name)
            return 1.0

        return measure


def turns_of(machine: Machine, rounds: int, seconds: float) -> dict[str, list[Turn]]:
    contestants = {name: machine.contestant(name) for name in "ab"}
    return take_turns(machine.probe, contestants, rounds, seconds, machine.clock)


def test_turns_are_interleaved_and_start_with_another_each_round():
    machine = Machine([1.0] * 100)
    turns = turns_of(machine, rounds=3, seconds=1000)
    assert "".join(machine.log) == "ab" + "ab" + "ba" + "ab"
    assert [len(taken) for taken in turns.values()] == [3, 3]


def test_what_was_thrown_away_is_measured_again():
    # The machine changes between the first and the second reading of the first round.
    machine = Machine([1.0, 2.0, 2.0] + [2.0] * 100)
    turns = turns_of(machine, rounds=2, seconds=1000)
    assert [keeps(turn) for turn in turns["a"]] == [False, True, True]
    assert [keeps(turn) for turn in turns["b"]] == [True, True]


def test_a_machine_that_never_stands_still_ends_with_the_time():
    machine = Machine([float(2**power) for power in range(200)])
    turns = turns_of(machine, rounds=3, seconds=20)
    assert summarise(turns["a"]) is None
    assert machine.now <= 30


def test_a_contestant_that_fails_takes_no_further_turns():
    machine = Machine([1.0] * 100)
    figures = iter([1.0, 1.0])

    def fails() -> float:
        try:
            return next(figures)
        except StopIteration:
            raise WithdrawnError("it crashed") from None

    withdrawn: dict[str, str] = {}
    contestants = {"a": machine.contestant("a"), "b": fails}
    turns = take_turns(machine.probe, contestants, 3, 1000, machine.clock, withdrawn)
    assert withdrawn == {"b": "it crashed"}
    assert [len(turns["a"]), len(turns["b"])] == [3, 1]
    with pytest.raises(WithdrawnError):
        take_turns(machine.probe, {"b": fails}, 3, 1000, machine.clock)
