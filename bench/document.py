"""docs/performance.md and its plots, written by the command that measured."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.build import TOP
from bench.findings import Finding
from bench.machine import machine
from bench.plots import plot
from bench.report import details, overview, table

PAGE = TOP / "docs" / "performance.md"

INTRODUCTION = """\
# Performance

This page was written by the command below; nobody edits it. Each question is a file of
`bench/questions/`. Figures of a machine that others use too say little, so each one is divided by a
probe of what the machine itself can do, read right before and right after: a ratio of 2 c means
twice the time of probe c, 0.5 m half the bytes of probe m. All contestants of a table took turns in
one run. The ratio is the median, and the quartiles are of the ratios as well. Turns between whose
two readings the probe moved by more than 10 % were thrown away, and the tables say how many. Where
a probe did worse, by more than a quarter, than at its best in this run, the verdict says so: the
machine was another one then, and the ratio says little.

| probe | is |
| --- | --- |
| c | an empty call that posts and an empty call that polls, of a nanobind extension |
| g | half a round trip of a cache line between the two processors, in C |
| r | a ring in C, 64 bytes beside a sequence number, each announced on its own |
| m | memcpy of the size, in large pages |
| v | process_vm_readv of the size, between the buffers of softhca's own turn |
| u | half a round trip of bare UDP datagrams over loopback, both sides spinning, in C |
| s | a stream of bare UDP datagrams of the payload in trains (UDP_SEGMENT, UDP_GRO), in C |
"""


def page(
    answers: Mapping[str, Sequence[Finding]], plots: Sequence[Path], here: Mapping[str, str]
) -> str:
    """The text of the page; `here` says where all was measured."""
    command = shlex.join(["python", "-m", "bench", *sys.argv[1:]])
    everything = [finding for findings in answers.values() for finding in findings]
    goals = [finding for finding in everything if finding.goal.goal is not None]
    parts = [
        INTRODUCTION,
        f"```sh\n{command}\n```\n",
        table(("what", "here"), list(here.items())),
    ]
    if goals:
        parts += ["\n## What was to be shown\n", overview(goals)]
    for path in plots:
        parts.append(f"\n![{path.stem.replace('-', ' ')}]({path.relative_to(PAGE.parent)})")
    for title, findings in answers.items():
        parts += [f"\n## {title[0].upper()}{title[1:]}\n", details(findings)]
    return "\n".join(parts) + "\n"


def write(answers: Mapping[str, Sequence[Finding]]) -> None:
    """Writes the page, and the plots where matplotlib is installed."""
    everything = [finding for findings in answers.values() for finding in findings]
    here = machine()  # Before the plots are changes to the commit.
    plots = plot(everything, PAGE.parent / "performance")
    PAGE.write_text(page(answers, plots, here))
