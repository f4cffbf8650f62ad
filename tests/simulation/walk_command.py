"""What `python -m simulation.…_walk FIRST COUNT [LINK...]` does."""

from __future__ import annotations

import sys
from collections.abc import Callable


def main(walk: Callable[..., int]) -> None:
    """Walks so many seeds over each link, by default on a fabric; says which of them fails."""
    first, count = int(sys.argv[1]), int(sys.argv[2])
    for seed in range(first, first + count):
        for name in sys.argv[3:] or ["fabric"]:
            try:
                walk(seed, link=name)
            except BaseException:
                print(f"seed {seed} over {name} fails", flush=True)
                raise
    print(f"{count} seeds pass")
