"""Whether a probe read the same in one question as in the others of a run.

A ratio is divided by what the machine could do at that moment. Where that was much less than at
other times of the run, as when two processors came to lie further apart, the ratio flatters us:
what was measured is not made of the probe alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from bench.findings import Better, Finding

# How far from the best reading of the run a probe may be, as a part of that.
MOST_OFF = 0.25
# Probes whose reading is one of a size.
_SIZED = frozenset("muvs")


def _of(finding: Finding) -> tuple[str, str, int]:
    size = finding.size if finding.probe in _SIZED else 0
    return finding.probe, finding.unit.name, size


def _best_readings(findings: Iterable[Finding]) -> dict[tuple[str, str, int], float]:
    """What each probe read beside the contestant in whose turns it did best."""
    best: dict[tuple[str, str, int], float] = {}
    for finding in findings:
        choose = min if finding.goal.better is Better.LESS else max
        for summary in finding.summaries.values():
            if summary is not None and finding.probe:
                known = best.setdefault(_of(finding), summary.probe)
                best[_of(finding)] = choose(known, summary.probe)
    return best


def doubted(answers: Mapping[str, Sequence[Finding]]) -> dict[str, list[Finding]]:
    """The same findings; those with a probe that read otherwise elsewhere in the run say so."""
    best = _best_readings(finding for findings in answers.values() for finding in findings)

    def with_doubt(finding: Finding) -> Finding:
        ours = finding.summaries.get(finding.ours)
        if ours is None or not finding.probe or finding.goal.goal is None:
            return finding
        slower = max(ours.probe, best[_of(finding)]) / min(ours.probe, best[_of(finding)])
        if slower <= 1 + MOST_OFF:
            return finding
        return replace(finding, doubt=f"probe at {slower:.1f} times its best")

    return {title: [*map(with_doubt, findings)] for title, findings in answers.items()}
