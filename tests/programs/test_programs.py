"""Random verbs programs over every link: the same seeds on every run.

SOFTHCA_SEEDS in the environment adds so many new ones.
"""

from __future__ import annotations

import os
import random

import pytest

from .compare import compare
from .world import LINKS

SEEDS = int(os.environ.get("SOFTHCA_SEEDS", "0"))


@pytest.mark.parametrize("link", LINKS)
def test_known_programs(link: str) -> None:
    for seed in range(1, 16):
        compare(seed, link)


def test_new_programs() -> None:
    first = random.SystemRandom().randrange(1 << 40)
    for seed in range(first, first + SEEDS):
        for link in LINKS:
            try:
                compare(seed, link)
            except BaseException:
                print(f"seed {seed} fails over {link}")
                raise
