"""Two processes, an adapter each: one writes into the other's memory, then tells it where to look.

The receiver's program does nothing while the WRITEs arrive: its adapter has a thread of its own.
What the two must know of each other before they can talk RDMA goes through a pipe here; a file or
a socket does as well, since QPInfo and RemoteMemory pack to bytes.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection

import softhca as hca

CHUNK_BYTES = 100_000
CHUNKS = 10


def wait_for(cq: hca.CQ) -> hca.WC:
    """Polls until something completes; raises if it did not succeed."""
    while not (completions := cq.poll(1)):
        pass
    completions[0].raise_for_status()
    return completions[0]


def receiver(pipe: Connection) -> None:
    """Offers memory, and sleeps until an immediate tells that it is full."""
    with hca.open() as dev, dev.alloc_pd() as pd, dev.create_cq(16) as cq:
        qp = pd.create_qp(hca.QPType.RC, send_cq=cq, recv_cq=cq)
        inbox = pd.reg_mr(bytearray(CHUNKS * CHUNK_BYTES))
        pipe.send((qp.info(), inbox.remote()))
        qp.connect(pipe.recv())
        qp.post_recv(hca.Recv())  # WRITE with immediate takes a receive, but no memory of it.
        pipe.send("ready")
        wc = wait_for(cq)
        full = all(
            inbox.obj[number * CHUNK_BYTES] == number + 1
            and inbox.obj[(number + 1) * CHUNK_BYTES - 1] == number + 1
            for number in range(CHUNKS)
        )
        print(f"{dev.gid}: immediate {wc.imm_data:#x}, all chunks in place: {full}")
        pipe.send("done")


def sender(pipe: Connection) -> None:
    """Writes chunk after chunk; only the last one asks for a completion and carries a message."""
    with hca.open() as dev, dev.alloc_pd() as pd, dev.create_cq(16) as cq:
        qp = pd.create_qp(hca.QPType.RC, send_cq=cq, recv_cq=cq)
        outbox = pd.reg_mr(b"".join(bytes([n + 1]) * CHUNK_BYTES for n in range(CHUNKS)))
        info, far = pipe.recv()
        pipe.send(qp.info())
        qp.connect(info)
        assert pipe.recv() == "ready"
        parts = [slice(n * CHUNK_BYTES, (n + 1) * CHUNK_BYTES) for n in range(CHUNKS)]
        writes = [hca.Write(outbox[part], remote=far[part]) for part in parts[:-1]]
        last = hca.WriteImm(outbox[parts[-1]], remote=far[parts[-1]], imm=0xF00D, signaled=True)
        qp.post_send([*writes, last])
        wait_for(cq)
        print(
            f"{dev.gid}: wrote {len(outbox)} bytes to {info.gid}, {qp.counters.sent_pkts} packets"
        )
        assert pipe.recv() == "done"


if __name__ == "__main__":
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=receiver, args=(theirs,))
    process.start()
    sender(ours)
    process.join()
