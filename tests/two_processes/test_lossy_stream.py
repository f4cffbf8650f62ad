"""IBTA Vol 1, 9.7: reliable means every byte, whatever the links do.

SOFTHCA_LOSS_MIB sets how much is sent; the default is 24 MiB a case.
"""

from __future__ import annotations

import os
import random

import pytest

from .lossy_stream import NAMES, run

MIB = int(os.environ.get("SOFTHCA_LOSS_MIB", "24"))
SEED = int(os.environ.get("SOFTHCA_TEST_SEED", random.SystemRandom().randrange(1 << 31)))


@pytest.mark.parametrize("percent", [0, 1, 5, 20])
def test_every_byte_arrives(percent: int) -> None:
    result = run(MIB, dict.fromkeys(NAMES, percent / 100), SEED)
    print(result)
    assert result["wrong"] == 0
    assert result["states"] == ["RTS", "RTS"]
    if percent:
        # The counters say why it took longer.
        assert result["sender"]["retransmitted_pkts"] > 0
        assert result["receiver"]["duplicate_request"] > 0
        assert result["receiver"]["out_of_sequence"] > 0


@pytest.mark.parametrize("kind", NAMES)
def test_one_kind_of_fault_at_20_percent(kind: str) -> None:
    result = run(max(1, MIB // 4), {kind: 0.2}, SEED)
    print(result)
    assert result["wrong"] == 0
    assert result["states"] == ["RTS", "RTS"]
