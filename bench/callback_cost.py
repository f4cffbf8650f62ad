"""What does a callback per completion cost, beside a loop that polls and looks up the wr_id?

    python bench/callback_cost.py [--completions 200000] [--rounds 9]

The completions are flushed receives, made beforehand, so that nothing but their delivery is timed.
Prints nanoseconds per completion (medians over interleaved rounds) and the ratio to the bare loop.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable

import softhca as hca

QUEUE = 4096


class Done(hca.Cqe):
    """Counts."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 0
        self.over = threading.Event()

    def done(self, cq: hca.CQ, wc: hca.WC) -> None:
        self.left -= 1
        if not self.left:
            self.over.set()


def failed_qp(pd: hca.PD, cq: hca.CQ) -> hca.QP:
    """A queue pair whose receives complete at once, flushed."""
    qp = pd.create_qp(hca.QPType.RC, send_cq=cq, recv_cq=cq, max_send_wr=1, max_recv_wr=QUEUE)
    qp.modify(qp_state=hca.QPState.INIT, pkey_index=0, port_num=1, qp_access_flags=0)
    qp.modify(qp_state=hca.QPState.ERR)
    return qp


def bare_loop(pd: hca.PD, cq: hca.CQ, qp: hca.QP) -> float:
    table = {n: object() for n in range(QUEUE)}
    qp.post_recv([hca.Recv(wr_id=n) for n in range(QUEUE)])
    found = None
    start = time.perf_counter_ns()
    while wcs := cq.poll(16):
        for wc in wcs:
            found = table[wc.wr_id]
    spent = time.perf_counter_ns() - start
    assert found is table[QUEUE - 1]
    return spent / QUEUE


def direct(pd: hca.PD, cq: hca.CallbackCQ, qp: hca.QP) -> float:
    done = Done()
    done.left = QUEUE
    qp.post_recv([hca.Recv(cqe=done)] * QUEUE)
    start = time.perf_counter_ns()
    cq.process_direct()
    spent = time.perf_counter_ns() - start
    assert not done.left
    return spent / QUEUE


def threaded(pd: hca.PD, cq: hca.CallbackCQ, qp: hca.QP) -> float:
    done = Done()
    done.left = QUEUE
    wrs = [hca.Recv(cqe=done)] * QUEUE
    start = time.perf_counter_ns()
    qp.post_recv(wrs)
    done.over.wait()
    return (time.perf_counter_ns() - start) / QUEUE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--completions", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    repeats = max(1, options.completions // QUEUE // options.rounds)
    with hca.open() as device, device.alloc_pd() as pd:
        runs: dict[str, Callable[[], float]] = {}

        def add(name: str, run: Callable[..., float], cq: hca.CQ) -> None:
            qp = failed_qp(pd, cq)
            runs[name] = lambda: run(pd, cq, qp)

        add("poll and look up", bare_loop, device.create_cq(QUEUE))
        for context, run in (
            (hca.PollContext.DIRECT, direct),
            (hca.PollContext.SOFTIRQ, threaded),
            (hca.PollContext.WORKQUEUE, threaded),
        ):
            add(context.name, run, device.alloc_cq(QUEUE, poll_context=context))
        measured: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(options.rounds):
            for name, run_once in runs.items():
                measured[name].append(min(run_once() for _ in range(repeats)))
        bare = measured["poll and look up"]
        print(f"{'':18} {'ns each':>8} {'x bare':>7}")
        for name, figures in measured.items():
            ratio = statistics.median(a / b for a, b in zip(figures, bare, strict=True))
            print(f"{name:18} {statistics.median(figures):8.0f} {ratio:7.2f}")


if __name__ == "__main__":
    main()
