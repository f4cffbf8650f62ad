"""Random walks over verbs: the same seeds on every run, and those that once failed.

SOFTHCA_SEEDS in the environment adds so many new ones; the long check takes tens of thousands.
"""

from __future__ import annotations

import os
import random

import pytest

from .random_walk import walk

# Seeds that once failed, by what was wrong.
CORPUS = [
    900096,  # An atomic has its turn when a WRITE to its word is refused: the checker erred.
    10131,  # A lost part of a READ's answer is asked for during an RNR delay: the checker erred.
]

SEEDS = int(os.environ.get("SOFTHCA_SEEDS", "0"))


@pytest.mark.parametrize("seed", [*range(1, 31), *CORPUS])
def test_known_seeds(seed: int) -> None:
    assert walk(seed) > 10


def test_new_seeds() -> None:
    first = random.SystemRandom().randrange(1 << 40)
    for seed in range(first, first + SEEDS):
        print(f"seed {seed}")
        walk(seed, steps=80)
