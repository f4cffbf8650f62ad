"""Findings as tables of Markdown, which are fit for a terminal as well."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.findings import Better, Finding
from bench.profile import Profile
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
        ends = (wanted(finding), finding.judgement) if name == finding.ours else ("", "")
        lines.append((finding.what, name, *_cells(summary, finding), *ends))
    return lines


def details(findings: Sequence[Finding]) -> str:
    """Everybody who was measured, and who could not be, with the reason."""
    text = table(HEADER, [line for finding in findings for line in lines_of(finding)])
    missing = {name: why for finding in findings for name, why in finding.absent.items()}
    parts = [text, *(["\nSkipped:\n"] if missing else []), *map(_skipped, missing.items())]
    for finding in findings:
        if finding.missed and (finding.profile is not None or finding.because):
            parts += [f"\n{reasons(finding)}"]
    return "\n".join(parts)


def _skipped(who_and_why: tuple[str, str]) -> str:
    who, why = who_and_why
    return f"- {who}: {why}"


def reasons(finding: Finding) -> str:
    """Why a goal was missed: in words, and where the time goes."""
    parts = [f'Why "{finding.what}" is missed: {finding.because or "see where its time goes."}']
    profile = finding.profile
    if profile is not None and profile.missing:
        parts.append(f"No profile: {profile.missing}.")
    elif profile is not None:
        parts.append(shares(profile))
    return "\n\n".join(parts)


def shares(profile: Profile) -> str:
    """A profile as a table; a group that has functions of its own ends with the rest of it."""
    with_functions = {group for group, function in profile.places if function}
    lines = []
    for (group, function), of_sides in profile.places.items():
        where = f"`{function}`" if function else ("the rest" if group in with_functions else "all")
        cells = [f"{100 * of_sides.get(name, 0.0):.0f} %" for name in profile.samples]
        lines.append((group, where, *cells))
    heads = [f"{name}, {count} samples" for name, count in profile.samples.items()]
    return table(("in", "where", *heads), lines)


def overview(findings: Iterable[Finding]) -> str:
    """A line for each goal: what was reached, and how near the best of the others comes."""
    lines = []
    for finding in findings:
        ours = finding.summaries.get(finding.ours)
        reached = ratio_of(ours, finding) if ours is not None else "-"
        line = (finding.what, reached, wanted(finding), finding.judgement, best_peer(finding))
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
