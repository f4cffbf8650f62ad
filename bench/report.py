"""Findings as tables of Markdown, which are fit for a terminal as well."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.findings import Better, Finding
from bench.ratios import Summary


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose columns are as wide as what is in them."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    padded = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines]
    padded.insert(1, "| " + " | ".join("-" * width for width in widths) + " |")
    return "\n".join(padded)


def number(value: float) -> str:
    """Three digits that count."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"


def wanted(finding: Finding) -> str:
    """The goal and the stretch in words of one cell."""
    goal = finding.goal
    if goal.goal is None:
        return ""
    text = f"{goal.better.value} {number(goal.goal)} {finding.probe}".rstrip()
    return text if goal.stretch is None else f"{text} ({number(goal.stretch)})"


HEADER = ("what", "who", "ratio", "quartiles", "figure", "probe", "turns", "goal", "verdict")


def in_units(value: float, finding: Finding) -> str:
    """A figure as people read it."""
    return f"{number(value / finding.unit.scale)} {finding.unit.name}"


def ratio_of(summary: Summary, finding: Finding) -> str:
    """A ratio with the letter of its probe."""
    return f"{number(summary.median)} {finding.probe}".rstrip()


def _cells(summary: Summary | None, finding: Finding) -> tuple[str, ...]:
    if summary is None:
        return ("-", "-", "-", "-", "none kept")
    thrown = f", {summary.thrown} thrown away" if summary.thrown else ""
    return (
        ratio_of(summary, finding),
        f"{number(summary.low)} to {number(summary.high)}",
        in_units(summary.figure, finding),
        in_units(summary.probe, finding) if finding.probe else "",
        f"{summary.kept}{thrown}",
    )


def lines_of(finding: Finding) -> list[tuple[str, ...]]:
    """The lines of one finding: ours with the goal, then the others."""
    lines = []
    for name, summary in finding.summaries.items():
        ends = (wanted(finding), finding.verdict) if name == finding.ours else ("", "")
        lines.append((finding.what, name, *_cells(summary, finding), *ends))
    return lines


def details(findings: Sequence[Finding]) -> str:
    """Everybody who was measured, and who could not be, with the reason."""
    text = table(HEADER, [line for finding in findings for line in lines_of(finding)])
    missing = {name: why for finding in findings for name, why in finding.absent.items()}
    return "\n".join(
        [text, *(["\nSkipped:\n"] if missing else []), *map(_skipped, missing.items())]
    )


def _skipped(who_and_why: tuple[str, str]) -> str:
    who, why = who_and_why
    return f"- {who}: {why}"


def overview(findings: Iterable[Finding]) -> str:
    """A line for each goal: what was reached, and how near the best of the others comes."""
    lines = []
    for finding in findings:
        ours = finding.summaries.get(finding.ours)
        reached = ratio_of(ours, finding) if ours is not None else "-"
        line = (finding.what, reached, wanted(finding), finding.verdict, best_peer(finding))
        lines.append(line)
    return table(("what", "softhca", "goal (stretch)", "verdict", "best peer"), lines)


def best_peer(finding: Finding) -> str:
    """The one of the others that comes nearest to the probe."""
    others = [
        (summary.median, name, summary)
        for name, summary in finding.summaries.items()
        if summary is not None and not name.startswith("softhca")
    ]
    if not others:
        return ""
    choose = min if finding.goal.better is Better.LESS else max
    _, name, summary = choose(others)
    return f"{name}: {ratio_of(summary, finding)}"
