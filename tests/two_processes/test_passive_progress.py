"""One-sided operations proceed while their target never calls; an idle adapter is asleep."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.two_processes.one_sided import Initiator, Target

from softhca import CmpSwap, FetchAdd, Read, RemoteMemory, Write

ROUNDS = 200
IDLE_SECONDS = 4.0


def test_one_sided_operations_complete_while_the_target_computes(
    pair: tuple[Initiator, Target, RemoteMemory],
) -> None:
    initiator, target, far = pair
    mr, memory = initiator.mr, initiator.memory
    target.say({"compute": True})
    assert target.hear() == {"computing": True}
    for rounds in range(ROUNDS):
        memory[:8192] = rounds.to_bytes(4, "little") * 2048
        initiator.do(Write(mr[0:8192], remote=far[0:8192], signaled=True))
        initiator.do(Read(mr[16384:24576], remote=far[0:8192], signaled=True))
        assert memory[16384:24576] == memory[:8192]
        initiator.do(FetchAdd(mr[32768:32776], remote=far[40960:40968], add=1, signaled=True))
        assert int.from_bytes(memory[32768:32776], sys.byteorder) == 2 * rounds
        initiator.do(
            CmpSwap(
                mr[32768:32776],
                remote=far[40960:40968],
                compare=2 * rounds + 1,
                swap=2 * rounds + 2,
                signaled=True,
            )
        )
    # It computes until it is told by such an operation: all of them happened meanwhile.
    memory[0] = 1
    initiator.do(Write(mr[0:1], remote=far[len(memory) - 1 : len(memory)], signaled=True))
    assert target.hear()["rounds"] > 0


def test_an_idle_adapter_uses_less_than_half_a_percent_of_a_core(
    pair: tuple[Initiator, Target, RemoteMemory],
) -> None:
    initiator, target, far = pair
    initiator.do(Write(initiator.mr[0:8], remote=far[0:8], signaled=True))
    target.say({})
    before = target.hear()["cpu"]
    with pytest.raises(subprocess.TimeoutExpired):
        target.process.wait(timeout=IDLE_SECONDS)
    target.say({})
    used = target.hear()["cpu"] - before
    print(f"idle: {used / IDLE_SECONDS:.3%} of a core")
    assert used / IDLE_SECONDS < 0.005
