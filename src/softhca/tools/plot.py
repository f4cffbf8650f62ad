"""Draws what `softhca perf` measured. The one file that needs matplotlib."""

from __future__ import annotations

from typing import Any

import matplotlib
from matplotlib.figure import Figure

matplotlib.use("Agg")  # A file is written; no display is needed.


def formats() -> list[str]:
    """Endings of file names that say how to draw."""
    return sorted(Figure().canvas.get_supported_filetypes())


def draw(result: dict[str, Any], path: str) -> None:
    """Writes a picture of the rows; its format is that of the file name's ending."""
    rows = result["rows"]
    sizes = [row["bytes"] for row in rows]
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    if "t_typical_usec" in rows[0]:
        axes.plot(sizes, [row["t_typical_usec"] for row in rows], marker="o", label="typical")
        axes.plot(sizes, [row["t_99_usec"] for row in rows], marker=".", label="99 %")
        axes.set_ylabel("latency [µs]")
        axes.set_yscale("log")
    else:
        axes.plot(sizes, [row["bw_average_mib_s"] for row in rows], marker="o", label="average")
        axes.plot(sizes, [row["bw_peak_mib_s"] for row in rows], marker=".", label="peak")
        axes.set_ylabel("bandwidth [MiB/s]")
    axes.set_xscale("log", base=2)
    axes.set_xlabel("message [bytes]")
    axes.set_title(f"softhca {result['test']}, RC, path MTU {result['path_mtu']}")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)
