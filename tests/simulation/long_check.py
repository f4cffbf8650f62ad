"""The long check: seeds of random walks, and scenes about rules that walks seldom touch.

Run it with `python -m simulation.long_check FIRST COUNT`, with tests/ on the path.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable

import softhca as hca
from softhca.testing import Fabric, Pair

from .random_walk import walk


def rnr_retries_are_restored(fabric: Fabric) -> None:
    """Each message is met with as many RNR NAKs as are allowed, and waits as long as they ask."""
    pair = Pair(fabric, rnr_retry=2)
    a, b = pair.a, pair.b
    for _ in range(4):
        b.qp.post_recv(hca.Recv(b.mr[:100]))
        start_ns = fabric.now_ns
        with fabric.faults.rnr(tries=2, timer_code=14, destination=b.device):
            a.qp.post_send(hca.Send(a.mr[:5], signaled=True))
            a.next().raise_for_status()
        assert fabric.now_ns - start_ns >= 2 * 1_280_000, "it did not wait for the receiver"


def retries_are_restored(fabric: Fabric) -> None:
    """Each message is lost as often as is allowed."""
    pair = Pair(fabric, retry_early=False, timeout=8, retry_cnt=2)
    a, b = pair.a, pair.b
    for _ in range(4):
        with fabric.faults.drop(source=a.device, times=2):
            a.qp.post_send(hca.Write(a.mr[:5], remote=b.mr.remote(), signaled=True))
            a.next().raise_for_status()


def a_gap_spends_a_retry(fabric: Fabric) -> None:
    """A packet lost in the middle of a message ends a connection that allows no retry."""
    pair = Pair(fabric, retry_cnt=0)
    a, b = pair.a, pair.b
    with fabric.faults.drop(source=a.device, opcode="RC_RDMA_WRITE_MIDDLE", times=1):
        a.qp.post_send(hca.Write(a.mr[:20_000], remote=b.mr.remote(), signaled=True))
        status = a.next().status
    assert status is hca.WcStatus.RETRY_EXC_ERR, f"the WRITE ended with {status.name}"


def a_fence_waits(fabric: Fabric) -> None:
    """A READ does not find what a fenced WRITE behind it leaves at the end of its range."""
    pair = Pair(fabric)
    a, b = pair.a, pair.b
    size, tail = 32_000, 1000
    b.buffer[:size] = b"\x01" * size
    a.buffer[size : size + tail] = b"\x02" * tail
    end = b.mr.remote()[size - tail : size]
    a.qp.post_send(
        [
            hca.Read(a.mr[:size], remote=b.mr.remote()[:size], signaled=True),
            hca.Write(a.mr[size : size + tail], remote=end, fence=True, signaled=True),
        ]
    )
    for _ in range(2):
        a.next().raise_for_status()
    assert a.buffer[:size] == b"\x01" * size, "the WRITE overtook the READ"
    assert b.buffer[size - tail : size] == b"\x02" * tail


def a_queue_pair_gives_what_it_says(fabric: Fabric) -> None:
    """A READ is refused by a queue pair that gives no right to it, whatever the region gives."""
    pair = Pair(fabric)
    a, b = pair.a, pair.b
    for qp in (a.qp, b.qp):
        qp.modify(qp_state=hca.QPState.RESET)
    a.qp.connect(b.qp.info())
    b.qp.connect(a.qp.info(), qp_access_flags=hca.Access.REMOTE_WRITE)
    a.qp.post_send(hca.Write(a.mr[:9], remote=b.mr.remote(), signaled=True))
    a.next().raise_for_status()
    a.qp.post_send(hca.Read(a.mr[:9], remote=b.mr.remote()[:9], signaled=True))
    status = a.next().status
    assert status is hca.WcStatus.REM_INV_REQ_ERR, f"the READ ended with {status.name}"


SCENES: list[Callable[[Fabric], None]] = [
    rnr_retries_are_restored,
    retries_are_restored,
    a_gap_spends_a_retry,
    a_fence_waits,
    a_queue_pair_gives_what_it_says,
]


def check(seed: int) -> None:
    """One seed: a scene, and a walk."""
    scene = SCENES[seed % len(SCENES)]
    with Fabric(seed, gbps=10) as fabric:
        scene(fabric)
    walk(seed)


def main() -> int:
    first, count = int(sys.argv[1]), int(sys.argv[2])
    for seed in range(first, first + count):
        try:
            check(seed)
        except Exception as error:
            traceback.print_exc(limit=-3)
            print(f"seed {seed} fails: {type(error).__name__}: {error}".splitlines()[0], flush=True)
            return 1
    print(f"{count} seeds pass")
    return 0


if __name__ == "__main__":
    sys.exit(main())
