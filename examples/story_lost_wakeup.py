"""A wake-up lost between poll and notify: the program, the fabric that shows it, the repair.

The consumer below is found in many programs, and hangs once in a million. Which seeds of the fabric
let a completion come between its last poll and its arming depends on timing alone; the exploration
finds one, and the fabric says who waits for what.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from softhca import NotifyFlags, Recv, Send
from softhca.testing import End, ExploreError, Fabric, Pair, explore

MESSAGES = 4
ARM = NotifyFlags.NEXT_COMP


def produce(fabric: Fabric, end: End) -> None:
    """Sends messages at times of its own."""
    draw = random.Random(fabric.seed)
    for _ in range(MESSAGES):
        end.qp.post_send(Send(end.mr[:8]))
        fabric.sleep(draw.random() * 1e-6)


def careless(fabric: Fabric, end: End) -> int:
    """Polls until the queue is empty, does something else, arms, sleeps."""
    taken = 0
    while taken < MESSAGES:
        while wcs := end.poll():
            taken += len(wcs)
        if taken >= MESSAGES:
            break
        fabric.sleep(3e-7)  # A line of a log, a page fault: anything.
        end.cq.req_notify(ARM)
        end.channel.get_event()
        end.cq.ack_events()
    return taken


def careful(fabric: Fabric, end: End) -> int:
    """The same, and looks once more when it has armed."""
    taken = 0
    while taken < MESSAGES:
        while wcs := end.poll():
            taken += len(wcs)
        if taken >= MESSAGES:
            break
        fabric.sleep(3e-7)
        if end.cq.req_notify(ARM | NotifyFlags.REPORT_MISSED_EVENTS) > 0:
            continue
        end.channel.get_event()
        end.cq.ack_events()
    return taken


def scene(consume: Callable[[Fabric, End], object]) -> Callable[[Fabric], None]:
    """A test of a consumer."""

    def test(fabric: Fabric) -> None:
        pair = Pair(fabric)
        pair.b.qp.post_recv([Recv(pair.b.mr[:8])] * MESSAGES)
        fabric.run(
            lambda: produce(fabric, pair.a), lambda: consume(fabric, pair.b), names=("a", "b")
        )

    return test


if __name__ == "__main__":
    try:
        explore(scene(careless), runs=100)
    except ExploreError as found:
        print("careless:", str(found).splitlines()[0])
        print(next(line for line in str(found).splitlines() if "waits for" in line).strip())
    print("careful:", explore(scene(careful), runs=100), "seeds pass")
