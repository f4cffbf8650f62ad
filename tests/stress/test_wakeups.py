"""No wake-up is lost, and the run that says so can fail.

SOFTHCA_WAKEUPS sets how many completions each consumer takes.
"""

from __future__ import annotations

import os
import random

import pytest

from .wakeups import CONSUMERS, run

COMPLETIONS = int(os.environ.get("SOFTHCA_WAKEUPS", "30000"))
SEED = int(os.environ.get("SOFTHCA_TEST_SEED", random.SystemRandom().randrange(1 << 31)))


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_no_wakeup_is_lost(consumer: str) -> None:
    if consumer == "trio":
        pytest.importorskip("trio")
    trouble, figures = run(COMPLETIONS, SEED, consumer)
    print(f"seed {SEED}", figures)
    assert not trouble, f"seed {SEED}: {trouble}"
    assert figures["sleeps"] > 0


@pytest.mark.parametrize("consumer", ["thread", "add_reader"])
def test_a_careless_consumer_is_found_out(consumer: str) -> None:
    """It is lost after some thousand completions, unless others have all the processors."""
    for attempt in range(3):
        trouble, figures = run(2_000_000, SEED + attempt, consumer, careless=True, patience_s=5)
        print(f"seed {SEED + attempt}", figures)
        if trouble:
            break
    assert trouble.startswith("LOST WAKE-UP"), f"seed {SEED}: {trouble}"
