"""One-sided operations proceed while their target never calls; an idle adapter is asleep."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

import softhca as hca
from softhca import CmpSwap, FetchAdd, QPInfo, QPType, Read, RemoteMemory, Write

ROUNDS = 200
# Retries go on for as long as a completion is waited for: a target that gets no processor lives.
TIMEOUT_CODE = 19
IDLE_SECONDS = 4.0


class Target:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.two_processes.target"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def say(self, what: dict[str, Any]) -> None:
        print(json.dumps(what), file=self.process.stdin, flush=True)

    def hear(self) -> dict[str, Any]:
        heard: dict[str, Any] = json.loads(self.process.stdout.readline())  # type: ignore[union-attr]
        return heard


class Initiator:
    """One connected queue pair, a kilobyte of memory, and one operation at a time."""

    def __init__(self, device: hca.Device, stack: contextlib.ExitStack) -> None:
        pd = stack.enter_context(device.alloc_pd())
        self.cq = stack.enter_context(device.create_cq(16))
        self.qp = stack.enter_context(
            pd.create_qp(QPType.RC, send_cq=self.cq, recv_cq=self.cq, max_send_wr=4, max_recv_wr=4)
        )
        self.memory = bytearray(1 << 16)
        self.mr = stack.enter_context(pd.reg_mr(self.memory))

    def do(self, request: hca.SendRequest) -> None:
        self.qp.post_send(request)
        until = time.monotonic() + 20
        while not (completions := self.cq.poll(4)):
            assert time.monotonic() < until, "no completion"
        completions[0].raise_for_status()


@pytest.fixture
def pair() -> Iterator[tuple[Initiator, Target, RemoteMemory]]:
    target = Target()
    try:
        with contextlib.ExitStack() as stack:
            initiator = Initiator(stack.enter_context(hca.open()), stack)
            there = target.hear()
            target.say({"info": initiator.qp.info().to_bytes().hex()})
            info = QPInfo.from_bytes(bytes.fromhex(there["info"]))
            initiator.qp.connect(info, timeout=TIMEOUT_CODE)
            target.hear()
            yield initiator, target, RemoteMemory.from_bytes(bytes.fromhex(there["remote"]))
    finally:
        target.process.kill()
        target.process.communicate()


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
