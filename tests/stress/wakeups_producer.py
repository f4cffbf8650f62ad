"""Sends bursts, and waits for the consumer in between: that is when a lost wake-up shows."""

from __future__ import annotations

import random
import time
from typing import Any

import softhca as hca
from softhca import QPInfo, QPType, Send

from .wakeups_consumer import WINDOW
from .wakeups_ledger import BURSTS, CONSUMED, DELIVERED, Ledger

BURSTS_OF = (1, 1, 1, 2, 3, 5, 8, 13, 32, 64, 100)


def main(ledger: Ledger, pipe: Any, completions: int, seed: int) -> None:
    """Runs in a process of its own."""
    draw = random.Random(seed)
    with (
        hca.open() as device,
        device.alloc_pd() as pd,
        device.create_cq(WINDOW) as cq,
        pd.create_qp(QPType.RC, send_cq=cq, recv_cq=cq, max_send_wr=2 * WINDOW) as qp,
    ):
        pipe.send(qp.info().to_bytes())
        qp.connect(QPInfo.from_bytes(pipe.recv()))
        _produce(ledger, qp, cq, completions, draw)
        pipe.send("done")


def _produce(ledger: Ledger, qp: hca.QP, cq: hca.CQ, completions: int, draw: random.Random) -> None:
    lists = {
        size: [Send()] * (size - 1) + [Send(wr_id=size, signaled=True, solicited=True)]
        for size in range(1, max(BURSTS_OF) + 1)
    }
    words = ledger.words
    sent = 0

    def heed() -> None:
        for wc in cq.poll(64):
            wc.raise_for_status()
            words[DELIVERED] += wc.wr_id

    while sent < completions:
        size = min(draw.choice(BURSTS_OF), completions - sent)
        qp.post_send(lists[size])
        sent += size
        # Mostly until all were taken; now and then with some left, so that bursts meet.
        left = draw.choice((0, 0, 0, 1, 10, WINDOW - max(BURSTS_OF)))
        words[BURSTS] += 1
        while sent - words[CONSUMED] > left:
            heed()
        if draw.random() < 0.1:
            until_ns = time.monotonic_ns() + draw.randrange(300_000)
            while time.monotonic_ns() < until_ns:
                heed()
    while words[DELIVERED] < completions:
        heed()
