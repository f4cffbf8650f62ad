"""Does moderating completion events pay, for callbacks and for a thread that waits?

    python bench/moderation.py [--messages 20000] [--rounds 5] [--window 1 16]

One process sends 64-byte messages, so many under way; the other receives them with SOFTIRQ
callbacks. For each moderation (count, microseconds) it prints messages a second and the receiver's
processor time per message, as medians of interleaved rounds, and the ratio to no moderation.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import threading
import time
from multiprocessing.connection import Connection

import softhca as hca

BYTES = 64
DEPTH = 256
MODERATIONS = ((1, 0), (4, 16), (16, 32), (64, 128))


class Received(hca.Cqe):
    """Posts its receive again, and counts."""

    def __init__(self, qp: hca.QP, mr: hca.MR) -> None:
        super().__init__()
        self.qp = qp
        self.left = 0
        self.over = threading.Event()
        self.wr = hca.Recv(mr[:BYTES], cqe=self)

    def done(self, cq: hca.CQ, wc: hca.WC) -> None:
        self.qp.post_recv(self.wr)
        self.left -= 1
        if not self.left:
            self.over.set()


def receive(pipe: Connection) -> None:
    with hca.open() as device, device.alloc_pd() as pd:
        cq = device.alloc_cq(2 * DEPTH, poll_context=hca.PollContext.SOFTIRQ)
        qp = pd.create_qp(hca.QPType.RC, send_cq=cq, recv_cq=cq, max_recv_wr=DEPTH)
        mr = pd.reg_mr(bytearray(BYTES))
        pipe.send(qp.info())
        qp.connect(pipe.recv())
        received = Received(qp, mr)
        qp.post_recv([received.wr] * DEPTH)
        while (order := pipe.recv()) is not None:
            (count, period), messages = order
            cq.modify(cq_count=count, cq_period=period)
            received.left = messages
            received.over.clear()
            before = time.process_time()
            pipe.send("ready")
            received.over.wait()
            pipe.send(time.process_time() - before)


def send(qp: hca.QP, cq: hca.CQ, mr: hca.MR, messages: int, window: int) -> None:
    wr = hca.Send(mr[:BYTES], signaled=True)
    sent = under_way = 0
    while sent < messages or under_way:
        while under_way < window and sent < messages:
            qp.post_send(wr)
            sent += 1
            under_way += 1
        for wc in cq.poll():
            wc.raise_for_status()
            under_way -= 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--window", type=int, nargs="+", default=[1, 16])
    options = parser.parse_args()
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=receive, args=(there,))
    process.start()
    with hca.open() as device, device.alloc_pd() as pd:
        cq = device.create_cq(DEPTH)
        qp = pd.create_qp(hca.QPType.RC, send_cq=cq, recv_cq=cq, max_send_wr=DEPTH)
        qp.connect(here.recv())
        here.send(qp.info())
        mr = pd.reg_mr(bytearray(BYTES))
        print(
            f"{'window':>6} {'count':>5} {'us':>4} {'a second':>9} {'x':>5} {'us cpu':>7} {'x':>5}"
        )
        for window in options.window:
            rates: dict[tuple[int, int], list[float]] = {m: [] for m in MODERATIONS}
            costs: dict[tuple[int, int], list[float]] = {m: [] for m in MODERATIONS}
            for _ in range(options.rounds):
                for moderation in MODERATIONS:
                    here.send((moderation, options.messages))
                    here.recv()
                    start = time.perf_counter()
                    send(qp, cq, mr, options.messages, window)
                    costs[moderation].append(1e6 * here.recv() / options.messages)
                    rates[moderation].append(options.messages / (time.perf_counter() - start))
            for moderation in MODERATIONS:
                plain = MODERATIONS[0]
                rate = statistics.median(
                    a / b for a, b in zip(rates[moderation], rates[plain], strict=True)
                )
                cost = statistics.median(
                    a / b for a, b in zip(costs[moderation], costs[plain], strict=True)
                )
                print(
                    f"{window:6} {moderation[0]:5} {moderation[1]:4} "
                    f"{statistics.median(rates[moderation]):9.0f} {rate:5.2f} "
                    f"{statistics.median(costs[moderation]):7.2f} {cost:5.2f}"
                )
    here.send(None)
    process.join()


if __name__ == "__main__":
    main()
