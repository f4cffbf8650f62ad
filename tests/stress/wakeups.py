"""Millions of completions to a consumer that arms and sleeps at random, without any time-out.

    python -m tests.stress.wakeups --completions 10000000 --seed 7 --consumer thread

One process sends bursts of empty messages and pauses until they were taken; another takes them,
arming its queue in a random way and at random points. What it takes comes from its driver's thread.
A wake-up that is lost leaves the consumer asleep with completions waiting, and the producer waiting
for it: this process sees that, prints the seed, and exits with status 1. With `--careless` the
consumer neither asks for missed events nor polls again, and is lost soon.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
import time
from typing import Any

from . import wakeups_consumer, wakeups_producer
from .wakeups_ledger import Ledger

CONSUMERS = ("thread", "add_reader", "asyncio", "trio")
# Until the first message is delivered: both processes have to start.
START_PATIENCE_S = 60.0


def watch(ledger: Ledger, processes: list[Any], completions: int, patience_s: float) -> str:
    """Waits for the end; returns what went wrong, or nothing."""
    consumed, has_begun, changed = 0, False, time.monotonic()
    while ledger.consumed < completions:
        if (ledger.consumed, ledger.delivered > 0) != (consumed, has_begun):
            consumed, has_begun = ledger.consumed, ledger.delivered > 0
            changed = time.monotonic()
        for process in processes:
            if process.exitcode not in (None, 0):
                return f"{process.name} ended with {process.exitcode}"
        if time.monotonic() - changed > (patience_s if has_begun else START_PATIENCE_S):
            if ledger.delivered > consumed:
                return (
                    f"LOST WAKE-UP: {ledger.delivered - consumed} completions wait, and nobody "
                    f"has taken any for {patience_s} s; armed last with {ledger.arming}"
                )
            return "the producer makes no progress"
        processes[0].join(0.05)
    for process in processes:
        process.join(patience_s)
        if process.exitcode != 0:
            return f"{process.name} ended with {process.exitcode}"
    return ""


def run(
    completions: int, seed: int, consumer: str, *, careless: bool = False, patience_s: float = 30.0
) -> tuple[str, dict[str, float]]:
    """One run; returns what went wrong, or nothing, and figures."""
    context = multiprocessing.get_context("spawn")
    ledger = Ledger(context)
    here, there = context.Pipe()
    settings = (completions, seed)
    processes = [
        context.Process(
            target=wakeups_consumer.main,
            name="the consumer",
            args=(ledger, here, *settings, consumer, careless),
            daemon=True,
        ),
        context.Process(
            target=wakeups_producer.main,
            name="the producer",
            args=(ledger, there, *settings),
            daemon=True,
        ),
    ]
    began = time.monotonic()
    for process in processes:
        process.start()
    try:
        trouble = watch(ledger, processes, completions, patience_s)
    finally:
        for process in processes:
            process.kill()
            process.join()
    seconds = time.monotonic() - began
    figures = {
        "seconds": round(seconds, 1),
        "completions": ledger.consumed,
        "per second": round(ledger.consumed / seconds),
        "sleeps": ledger.sleeps,
        "bursts": ledger.bursts,
    }
    return trouble, figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--completions", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--consumer", choices=CONSUMERS, default="thread")
    parser.add_argument("--careless", action="store_true", help="arm, and sleep, and lose")
    parser.add_argument("--patience", type=float, default=30.0, help="seconds")
    options = parser.parse_args()
    print(f"seed {options.seed}, processors {len(os.sched_getaffinity(0))}", flush=True)
    trouble, figures = run(
        options.completions,
        options.seed,
        options.consumer,
        careless=options.careless,
        patience_s=options.patience,
    )
    print(options.consumer, figures)
    if trouble:
        print(f"FAILED with seed {options.seed}: {trouble}", file=sys.stderr)
    return 1 if trouble else 0


if __name__ == "__main__":
    sys.exit(main())
