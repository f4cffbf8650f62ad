"""Goodput over a lossy link, as a curve: the program, the fabric that shows it, the repair.

One large WRITE at a time over 10 Gb/s and 100 microseconds. With a loss of one packet in a thousand
most of the bandwidth is gone, since each message is waited for; several under way, and a time-out
that fits the link, give much of it back.

    python examples/story_lossy_goodput.py [CURVE.png]

The picture needs matplotlib; the figures do not.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

import softhca as hca
from softhca.testing import Fabric, Pair

MESSAGE = 256 << 10
MESSAGES = 24
LOSSES = (0.0, 0.0001, 0.001, 0.01, 0.03)


def goodput(loss: float, *, under_way: int, timeout: int, retry_early: bool) -> float:
    """Gb/s of payload."""
    with Fabric(seed=7, gbps=10, latency_ns=100_000, trace=False) as fabric:
        if loss:
            fabric.faults.drop(probability=loss)
        pair = Pair(fabric, MESSAGE, timeout=timeout, retry_early=retry_early)
        write = hca.Write(pair.a.mr[:], remote=pair.b.mr.remote(), signaled=True)
        for _ in range(under_way):
            pair.a.qp.post_send(write)
        for number in range(MESSAGES):
            pair.a.next().raise_for_status()
            if number + under_way < MESSAGES:
                pair.a.qp.post_send(write)
        return MESSAGE * MESSAGES * 8 / fabric.now_ns


PROGRAMS: dict[str, dict[str, Any]] = {
    "one at a time, time-out 67 ms": {"under_way": 1, "timeout": 14, "retry_early": False},
    "eight under way, time-out 67 ms": {"under_way": 8, "timeout": 14, "retry_early": False},
    "eight under way, early probes": {"under_way": 8, "timeout": 14, "retry_early": True},
}


def main() -> None:
    curves = {
        name: [goodput(loss, **options) for loss in LOSSES] for name, options in PROGRAMS.items()
    }
    print(f"{'loss':>34}" + "".join(f"{loss:>9.2%}" for loss in LOSSES))
    for name, curve in curves.items():
        print(f"{name:>34}" + "".join(f"{value:9.3f}" for value in curve), "Gb/s")
    if len(sys.argv) > 1:
        draw(curves, sys.argv[1])


def draw(curves: dict[str, list[float]], path: str) -> None:
    """Writes the curve as PNG."""
    with suppress(ImportError):
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
        for name, curve in curves.items():
            axes.plot([100 * loss for loss in LOSSES], curve, marker="o", label=name)
        axes.set(xlabel="packets lost (%)", ylabel="goodput (Gb/s)", ylim=(0, None))
        axes.set_xscale("symlog", linthresh=0.01)
        axes.grid(alpha=0.3)
        axes.legend()
        figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
