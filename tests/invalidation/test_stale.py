"""Nothing stale is ever reached, and the run that says so can fail.

SOFTHCA_TEST_ROUNDS sets how many rounds; the whole run is 100,000.
"""

from __future__ import annotations

import os
import random

from . import stale

ROUNDS = int(os.environ.get("SOFTHCA_TEST_ROUNDS", "1000"))
SEED = int(os.environ.get("SOFTHCA_TEST_SEED", random.SystemRandom().randrange(1 << 31)))


def test_nothing_stale_is_reached() -> None:
    trouble, figures = stale.run(ROUNDS, SEED)
    print(f"seed {SEED}", figures)
    assert not trouble, f"seed {SEED}: {trouble}"
    assert figures["refused"] > 0
    assert figures["hits"] > 0


def test_a_cache_without_notices_is_found_out() -> None:
    trouble, figures = stale.run(20_000, SEED, careless=True)
    print(f"seed {SEED}", figures)
    assert trouble.startswith("StaleError"), f"seed {SEED}: {trouble}"
