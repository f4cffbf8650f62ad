"""Four processes hand out numbers from one counter in a fifth, with RDMA atomics and no lock.

The owner of the counter sleeps meanwhile: atomics are done by its adapter, with real CPU atomics.
Every number is handed out exactly once.
"""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing.connection import Connection

import softhca as hca

WORKERS = 4
TICKETS_EACH = 250


def worker(pipe: Connection) -> None:
    """Draws tickets from the owner's counter and returns them."""
    with hca.open() as dev, dev.alloc_pd() as pd, dev.create_cq(16) as cq:
        qp = pd.create_qp(hca.QPType.RC, send_cq=cq, recv_cq=cq)
        ticket = pd.reg_mr(bytearray(8))
        pipe.send(qp.info())
        info, counter = pipe.recv()
        qp.connect(info)
        draw = hca.FetchAdd(ticket[:], remote=counter, add=1, signaled=True)
        drawn = []
        for _ in range(TICKETS_EACH):
            qp.post_send(draw)  # Work requests are immutable, so one serves for all.
            while not (completions := cq.poll(1)):
                pass
            completions[0].raise_for_status()
            drawn.append(int.from_bytes(ticket.obj, sys.byteorder))
        pipe.send(drawn)


def main() -> None:
    """Owns the counter, and looks at it only when all is over."""
    pipes = []
    processes = []
    for _ in range(WORKERS):
        ours, theirs = multiprocessing.Pipe()
        processes.append(multiprocessing.Process(target=worker, args=(theirs,)))
        processes[-1].start()
        pipes.append(ours)
    with hca.open() as dev, dev.alloc_pd() as pd, dev.create_cq(16) as cq:
        counter = pd.reg_mr(bytearray(8), hca.Access.LOCAL_WRITE | hca.Access.REMOTE_ATOMIC)
        qps = [pd.create_qp(hca.QPType.RC, send_cq=cq, recv_cq=cq) for _ in pipes]
        for pipe, qp in zip(pipes, qps, strict=True):
            qp.connect(pipe.recv())
            pipe.send((qp.info(), counter.remote()))
        tickets = sorted(ticket for pipe in pipes for ticket in pipe.recv())
        print(f"the counter stands at {int.from_bytes(counter.obj, sys.byteorder)}")
        print(f"every ticket once: {tickets == list(range(WORKERS * TICKETS_EACH))}")
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
