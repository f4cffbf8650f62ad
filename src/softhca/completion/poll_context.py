"""Where the callbacks of a completion queue run."""

from __future__ import annotations

from enum import IntEnum


class PollContext(IntEnum):
    """Where the callbacks of a completion queue run (enum ib_poll_context).

    The names are the kernel's. Nothing here is an interrupt: what they have in common with their
    namesakes is who waits for whom.

    Attributes:
        SOFTIRQ: One thread per completion vector runs the callbacks of all its queues, up to 256
            of one queue at a time. A callback that blocks holds up the vector.
        WORKQUEUE: A pool of threads per completion vector, up to 65,536 callbacks of one queue at a
            time. Callbacks may block: other queues go on in other threads.
        UNBOUND_WORKQUEUE: The same with one pool for the device.
        DIRECT: Nobody; the caller runs `process_cq_direct()`. No event, no thread.
    """

    SOFTIRQ = 0
    WORKQUEUE = 1
    UNBOUND_WORKQUEUE = 2
    DIRECT = 3


# Callbacks of one queue until it is the others' turn (IB_POLL_BUDGET_IRQ, _WORKQUEUE).
BUDGETS = {
    PollContext.SOFTIRQ: 256,
    PollContext.WORKQUEUE: 65536,
    PollContext.UNBOUND_WORKQUEUE: 65536,
}

# Threads that run callbacks at the same time. Those of a pool are started when all others wait.
MAX_THREADS = {
    PollContext.SOFTIRQ: 1,
    PollContext.WORKQUEUE: 256,
    PollContext.UNBOUND_WORKQUEUE: 256,
}
