"""Walks over windows: the same seeds on every run.

SOFTHCA_SEEDS in the environment adds so many new ones on a fabric.
"""

from __future__ import annotations

import os
import random

import pytest

from .window_walk import walk

SEEDS = int(os.environ.get("SOFTHCA_SEEDS", "0"))


@pytest.mark.parametrize("seed", range(1, 16))
def test_known_seeds(seed: int) -> None:
    assert walk(seed) > 10


@pytest.mark.parametrize("link", ["shared", "one", "udp"])
@pytest.mark.parametrize("seed", range(1, 5))
def test_inside_this_machine(seed: int, link: str) -> None:
    assert walk(seed, link=link) > 10


def test_new_seeds() -> None:
    first = random.SystemRandom().randrange(1 << 40)
    for seed in range(first, first + SEEDS):
        print(f"seed {seed}")
        walk(seed)
