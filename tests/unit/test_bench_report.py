"""What the benches print and draw."""

from __future__ import annotations

import pytest
from bench.command import main
from bench.findings import NANOSECONDS, Better, Finding, Goal
from bench.plots import curves
from bench.ratios import Turn, summarise
from bench.report import details, overview, table
from bench.steadiness import doubted


def finding(**changes) -> Finding:
    def taken(figure: float):
        return summarise([Turn(10e-9, figure, 10e-9)] * 7 + [Turn(10e-9, figure, 20e-9)])

    values = {
        "what": "a call",
        "goal": Goal(Better.LESS, 3, 2),
        "ours": "softhca",
        "probe": "c",
        "unit": NANOSECONDS,
        "summaries": {"softhca": taken(25e-9), "other": taken(51e-9), "third": taken(90e-9)},
        "absent": {"fourth": "not installed"},
    }
    return Finding(**{**values, **changes})


def test_columns_of_a_table_line_up():
    assert table(("a", "b"), [("long one", "x")]).splitlines() == [
        "| a        | b |",
        "| -------- | - |",
        "| long one | x |",
    ]


def test_the_overview_names_goal_verdict_and_the_best_of_the_others():
    line = overview([finding()]).splitlines()[-1]
    assert [cell.strip() for cell in line.strip("|").split("|")] == [
        "a call",
        "2.5 c",
        "≤ 3 c (2)",
        "met",
        "other: 5.1 c",
    ]


def test_the_best_has_most_where_more_is_better():
    line = overview([finding(goal=Goal(Better.MORE, 3))]).splitlines()[-1]
    assert "missed by 17 %" in line
    assert "third: 9 c" in line


def test_details_tell_everybody_and_who_is_absent():
    text = details([finding()])
    assert "25 ns" in text
    assert "7, 1 thrown away" in text
    assert text.endswith("Skipped:\n\n- fourth: not installed")


def test_nobody_counted():
    nobody = finding(summaries={"softhca": None})
    assert nobody.verdict == "not measured"
    assert "none kept" in details([nobody])
    assert "not measured" in overview([nobody])


def test_a_probe_that_read_otherwise_elsewhere_in_the_run_is_told_of():
    def read(reading: float, **changes) -> Finding:
        turns = [Turn(reading, 25e-9, reading)] * 7
        return finding(summaries={"softhca": summarise(turns)}, **changes)

    def judgements(*findings: Finding) -> list[str]:
        return [one.judgement for one in doubted({"calls": findings})["calls"]]

    assert judgements(read(10e-9), read(12e-9)) == ["met", "met"]
    assert judgements(read(10e-9), read(20e-9)) == [
        "met",
        "met, stretch too; probe at 2.0 times its best",
    ]
    more = Goal(Better.MORE, 1)
    assert judgements(read(10e-9, goal=more), read(20e-9, goal=more)) == [
        "met; probe at 2.0 times its best",
        "met",
    ]
    # Another probe, or of another size, is no evidence; a call has none.
    assert judgements(read(10e-9), read(20e-9, probe="g")) == ["met", "met, stretch too"]
    assert judgements(read(10e-9, probe="m", size=1), read(20e-9, probe="m", size=2)) == [
        "met",
        "met, stretch too",
    ]
    assert judgements(read(10e-9, size=1), read(20e-9, size=2))[1].endswith("times its best")
    (told,) = doubted({"calls": [read(20e-9, doubt="")]})["calls"]
    assert "times its best" not in overview([told])
    assert "times its best" in overview(doubted({"a": [read(10e-9)], "b": [read(20e-9)]})["b"])


def test_curves_have_the_probe_beside_the_contestants():
    points = [finding(picture="latency", size=size) for size in (8, 64)]
    drawn = curves([*points, finding()])
    assert set(drawn) == {"latency"}
    assert drawn["latency"]["softhca"] == [(8, pytest.approx(25)), (64, pytest.approx(25))]
    assert drawn["latency"]["probe c"] == [(8, pytest.approx(10)), (64, pytest.approx(10))]


def test_every_question_has_a_title(capsys):
    assert main(["--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert len(listed) >= 10
    assert all(len(line.split(maxsplit=1)) == 2 for line in listed)
