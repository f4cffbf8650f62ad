"""Bytes between two processes through a link that spoils a part of them, both ways.

    python -m tests.two_processes.lossy_stream --mib 1024 --percent 20

Each message is a SEND; every sixteenth is followed by a READ of a block of the peer. The receiver
compares every byte. Exits with status 1 if a byte was wrong or a queue pair failed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import subprocess
import sys
import time
from typing import Any

import softhca as hca
from softhca import MR, QP, QPInfo, QPType, Read, RemoteMemory, Send
from softhca.testing import Faults

from .blocks import BLOCK_BYTES, DEPTH, block, expected

# Retries go on for 8 s: a peer that gets no processor for a while is not dead.
CONNECT = {"timeout": 18, "retry_cnt": 7, "rnr_retry": 7, "min_rnr_timer": 12}
NAMES = ("drop", "duplicate", "reorder", "corrupt")


class Receiver:
    """The other process."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.two_processes.receiver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.say(settings)

    def say(self, what: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        print(json.dumps(what), file=self.process.stdin, flush=True)

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the receiving process ended early")
        heard: dict[str, Any] = json.loads(line)
        return heard


@dataclasses.dataclass
class Memory:
    """Registered bytes."""

    content: bytearray
    mr: MR


def pump(
    qp: QP, cq: hca.CQ, source: Memory, back: Memory, far: RemoteMemory, seed: int, count: int
) -> int:
    """Sends `count` messages, at most DEPTH under way; returns how many READs were wrong."""
    free = list(range(DEPTH))
    number = done = wrong = reading = 0
    while done < count or reading:
        while number < count and free:
            slot = free.pop()
            content = expected(seed, number)
            start = slot * BLOCK_BYTES
            source.content[start : start + len(content)] = content
            qp.post_send(Send(source.mr[start : start + len(content)], wr_id=slot, signaled=True))
            number += 1
            if number % 16 == 0 and not reading:
                qp.post_send(Read(back.mr[0:BLOCK_BYTES], remote=far, wr_id=DEPTH, signaled=True))
                reading = 1
        for wc in cq.poll(16):
            wc.raise_for_status()
            if wc.wr_id == DEPTH:
                wrong += back.content != block(seed, 0)
                reading = 0
            else:
                free.append(wc.wr_id)
                done += 1
    return wrong


def run(mib: int, faults: dict[str, float], seed: int) -> dict[str, Any]:
    """One stream; says what was wrong, what was counted, and how long it took."""
    count = max(1, mib * (1 << 20) // BLOCK_BYTES * 8 // 7)
    receiver = Receiver({"seed": seed, "count": count, "connect": CONNECT})
    sending, landing = bytearray(DEPTH * BLOCK_BYTES), bytearray(BLOCK_BYTES)
    try:
        with (
            hca.open(faults=Faults(**faults, seed=seed)) as device,
            device.alloc_pd() as pd,
            device.create_cq(4 * DEPTH) as cq,
            pd.create_qp(
                QPType.RC, send_cq=cq, recv_cq=cq, max_send_wr=2 * DEPTH, max_recv_wr=1
            ) as qp,
            pd.reg_mr(sending) as source,
            pd.reg_mr(landing) as back,
        ):
            far = receiver.hear()
            receiver.say({"info": qp.info().to_bytes().hex()})
            qp.connect(QPInfo.from_bytes(bytes.fromhex(far["info"])), **CONNECT)
            receiver.hear()
            began = time.monotonic()
            remote = RemoteMemory.from_bytes(bytes.fromhex(far["remote"]))
            wrong_reads = pump(
                qp, cq, Memory(sending, source), Memory(landing, back), remote, seed, count
            )
            seconds = time.monotonic() - began
            theirs = receiver.hear()
            receiver.say({})
            state = receiver.hear()["state"]
            return {
                "seed": seed,
                "mib": mib,
                "faults": faults,
                "seconds": round(seconds, 2),
                "wrong": theirs["wrong"] + wrong_reads,
                "messages": theirs["messages"],
                "states": [qp.query().qp_state.name, state],
                "sender": {name: value for name, value in qp.counters.items() if value},
                "receiver": theirs["counters"],
                "icrc_errors": device.counters.rx_icrc_encapsulated,
            }
    finally:
        receiver.process.kill()
        receiver.process.communicate()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--percent", type=float, default=1.0, help="of each kind of fault")
    parser.add_argument("--kinds", nargs="*", default=NAMES, choices=NAMES)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    args = parser.parse_args()
    result = run(args.mib, dict.fromkeys(args.kinds, args.percent / 100), args.seed)
    print(json.dumps(result, indent=1))
    return 1 if result["wrong"] or result["states"] != ["RTS", "RTS"] else 0


if __name__ == "__main__":
    sys.exit(main())
