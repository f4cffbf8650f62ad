"""One of two processes: writes blocks into the other's memory, over a bad network.

Its input is a line with the other's connection and memory; its output is a line with its own, and
then how often each fault struck.
"""

from __future__ import annotations

import sys

import softhca as hca
from softhca.testing import LinkFaults

from .fault_words import bad_day

BLOCK = 700
BLOCKS = 60


def block(number: int) -> bytes:
    """What block `number` holds; some begin with an x."""
    return (b"x" if number % 4 == 0 else b"y") + bytes([number]) * (BLOCK - 1)


def main() -> None:
    faults = LinkFaults(seed=5)
    made = bad_day(faults)
    with hca.open(faults=faults) as dev, dev.alloc_pd() as pd:
        cq = dev.create_cq(128)
        qp = pd.create_qp(hca.QPType.RC, send_cq=cq, recv_cq=cq, max_send_wr=128)
        print(qp.info().to_bytes().hex(), flush=True)
        info, remote = (bytes.fromhex(word) for word in sys.stdin.readline().split())
        qp.connect(hca.QPInfo.from_bytes(info), timeout=17)
        far = hca.RemoteMemory.from_bytes(remote)
        buffer = bytearray(b"".join(block(n) for n in range(BLOCKS)))
        mr = pd.reg_mr(buffer)
        for n in range(BLOCKS):
            part = slice(n * BLOCK, (n + 1) * BLOCK)
            qp.post_send(hca.Write(mr[part], remote=far[part], signaled=True))
        left = BLOCKS
        while left:
            for wc in cq.poll(64):
                wc.raise_for_status()
                left -= 1
        print(" ".join(str(fault.struck) for fault in made), flush=True)


if __name__ == "__main__":
    main()
