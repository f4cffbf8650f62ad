"""An initiator here, and a passive target in a process of its own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from typing import Any

import softhca as hca
from softhca import QPType


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
    """One connected queue pair, 64 KiB of memory, and one operation at a time."""

    def __init__(self, device: hca.Device, stack: contextlib.ExitStack) -> None:
        self.pd = stack.enter_context(device.alloc_pd())
        self.cq = stack.enter_context(device.create_cq(16))
        self.qp = stack.enter_context(
            self.pd.create_qp(
                QPType.RC, send_cq=self.cq, recv_cq=self.cq, max_send_wr=4, max_recv_wr=4
            )
        )
        self.memory = bytearray(1 << 16)
        self.mr = stack.enter_context(self.pd.reg_mr(self.memory))

    def do(self, request: hca.SendRequest) -> None:
        self.qp.post_send(request)
        until = time.monotonic() + 20
        while not (completions := self.cq.poll(4)):
            assert time.monotonic() < until, "no completion"
        completions[0].raise_for_status()
