"""Walks over states, windows and groups: the same seeds on every run.

SOFTHCA_SEEDS in the environment adds so many new ones on a fabric.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

from . import group_walk, state_walk, window_walk

SEEDS = int(os.environ.get("SOFTHCA_SEEDS", "0"))
WALKS = {"states": state_walk.walk, "windows": window_walk.walk, "groups": group_walk.walk}

of_each_walk = pytest.mark.parametrize("walk", WALKS.values(), ids=WALKS)


@of_each_walk
@pytest.mark.parametrize("seed", range(1, 16))
def test_known_seeds(walk: Callable[..., int], seed: int) -> None:
    assert walk(seed) > 10


@of_each_walk
@pytest.mark.parametrize("link", ["shared", "one", "udp"])
@pytest.mark.parametrize("seed", range(1, 5))
def test_inside_this_machine(walk: Callable[..., int], seed: int, link: str) -> None:
    assert walk(seed, link=link) > 10


@of_each_walk
def test_new_seeds(walk: Callable[..., int]) -> None:
    first = random.SystemRandom().randrange(1 << 40)
    for seed in range(first, first + SEEDS):
        print(f"seed {seed}")
        walk(seed)
