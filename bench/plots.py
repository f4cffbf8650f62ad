"""Latency and bandwidth over message size, as pictures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from bench.findings import Finding

# Pictures, and what their figures are.
DRAWN = {
    "latency": "half a round trip, µs",
    "latency over UDP": "half a round trip, µs",
    "bandwidth": "GB/s",
    "bandwidth over UDP": "GB/s",
}

Curves = dict[str, list[tuple[int, float]]]


def curves(findings: Iterable[Finding]) -> dict[str, Curves]:
    """Points by picture and contestant, in figures of the unit; the probe is one of them."""
    pictures: dict[str, Curves] = defaultdict(lambda: defaultdict(list))
    for finding in findings:
        if not finding.picture:
            continue
        for name, summary in finding.summaries.items():
            if summary is not None:
                pictures[finding.picture][name].append(
                    (finding.size, summary.figure / finding.unit.scale)
                )
        ours = finding.summaries.get(finding.ours)
        if ours is not None:
            limit = f"probe {finding.probe}"
            pictures[finding.picture][limit].append((finding.size, ours.probe / finding.unit.scale))
    return pictures


def plot(findings: Iterable[Finding], folder: Path) -> list[Path]:
    """Draws what there is; nothing without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return []
    matplotlib.use("Agg")
    from matplotlib import pyplot

    made = []
    for what, picture in curves(findings).items():
        figure, axes = pyplot.subplots(figsize=(8, 5))
        for name, points in picture.items():
            ours, probe = name.startswith("softhca"), name.startswith("probe")
            axes.plot(
                *zip(*sorted(points), strict=True),
                label=name,
                marker="o",
                linewidth=3 if ours else 1.5,
                linestyle=":" if probe else "-",
                color="black" if probe else None,
            )
        axes.set(xscale="log", yscale="log", xlabel="bytes of a message", ylabel=DRAWN[what])
        axes.set_xscale("log", base=2)
        axes.set_title(what)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
        folder.mkdir(exist_ok=True)
        path = folder / f"{what.replace(' ', '-').lower()}.png"
        figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})
        pyplot.close(figure)
        made.append(path)
    return made
