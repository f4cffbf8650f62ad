"""What huge pages under memory of the caller's own are worth: `python -m bench.huge_pages`.

WRITEs between two processes of a host, from and into memory of their own, where the kernel may put
huge pages under it and where the owner forbids it, in turns; the medians, and the median ratio of
neighbouring turns.
"""

from __future__ import annotations

import argparse
import statistics

from bench.softhca_sides import SofthcaSides

MIB = 1 << 20
SIZES = (1, 4, 16, 64)
BYTES = 256 * MIB
WINDOW = 4
KINDS = ("own", "own, small pages")


def rates(sides: SofthcaSides, size: int, rounds: int) -> list[list[float]]:
    """Bytes a second of each kind, turn by turn."""
    keys = [f"{kind} {size}" for kind in KINDS]
    for key, kind in zip(keys, KINDS, strict=True):
        sides.connect(key, size, kind)
    count = max(BYTES // size, 8)
    for key in keys:  # Until the pages are what they will be.
        sides.stream(key, "WRITE", 2 * count, WINDOW)
    return [[sides.stream(key, "WRITE", count, WINDOW) for key in keys] for _ in range(rounds)]


def main() -> None:
    """Prints a line for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    print("WRITE of  huge pages allowed  forbidden    ratio")
    with SofthcaSides() as sides:
        for size in SIZES:
            turns = rates(sides, size * MIB, rounds)
            allowed, forbidden = (
                statistics.median(kind) / 1e9 for kind in zip(*turns, strict=True)
            )
            ratio = statistics.median(free / bound for free, bound in turns)
            print(f"{size:4} MiB  {allowed:13.1f} GB/s  {forbidden:6.1f} GB/s  {ratio:6.2f}")


if __name__ == "__main__":
    main()
