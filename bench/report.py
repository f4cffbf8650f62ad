"""Findings as tables of Markdown, which are fit for a terminal as well."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.findings import Finding
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


HEADER = ("what", "who", "ratio", "quartiles", "figure", "turns", "thrown", "goal", "verdict")


def _cells(summary: Summary | None, finding: Finding) -> tuple[str, ...]:
    if summary is None:
        return ("-", "-", "-", "0", "all")
    return (
        f"{number(summary.median)} {finding.probe}".rstrip(),
        f"{number(summary.low)} to {number(summary.high)}",
        f"{number(summary.figure / finding.unit.scale)} {finding.unit.name}",
        str(summary.kept),
        str(summary.thrown),
    )


def lines_of(finding: Finding) -> list[tuple[str, ...]]:
    """The lines of one finding: ours with the goal, then the others."""
    lines = []
    for name, summary in finding.summaries.items():
        ends = (wanted(finding), finding.verdict) if name == finding.ours else ("", "")
        lines.append((finding.what, name, *_cells(summary, finding), *ends))
    for name, why in finding.absent.items():
        lines.append((finding.what, name, "skipped", why, "", "", "", "", ""))
    return lines


def findings_table(findings: Iterable[Finding]) -> str:
    """One table of all."""
    return table(HEADER, [line for finding in findings for line in lines_of(finding)])
