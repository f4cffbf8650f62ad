"""What does an idle completion queue cost?

    python bench/idle_queues.py [--queues 1000] [--seconds 3]

Processor time of a process that sleeps, in percent of one processor: with one open adapter, and
with so many armed queues of each poll context besides, their threads included.
"""

from __future__ import annotations

import argparse
import time

import softhca as hca


def used(seconds: float) -> float:
    """Percent of a processor that this process uses while it sleeps."""
    time.sleep(0.2)  # Threads that were just started go to sleep.
    before = time.process_time()
    time.sleep(seconds)
    return 100 * (time.process_time() - before) / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    with hca.open() as device:
        print(f"{'adapter alone':20} {used(options.seconds):7.4f} %")
        for context in hca.PollContext:
            if context is hca.PollContext.DIRECT:
                continue
            queues = [
                device.alloc_cq(16, comp_vector=n % device.num_comp_vectors, poll_context=context)
                for n in range(options.queues)
            ]
            print(f"{len(queues)} {context.name:15} {used(options.seconds):7.4f} %")
            for cq in queues:
                cq.free()


if __name__ == "__main__":
    main()
