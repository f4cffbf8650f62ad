"""A peer that reads and writes without end, until somebody kills it."""

from __future__ import annotations

import json
import random
import sys

import softhca as hca

BYTES = 1 << 20
LENGTHS = (1, 64, 5000, 300_000, BYTES)


class Side:
    """A connected queue pair with memory, on an adapter that is the caller's."""

    def __init__(self, dev: hca.Device, rng: random.Random) -> None:
        self.rng = rng
        self.cq = dev.create_cq(64)
        self.pd = dev.alloc_pd()
        self.qp = self.pd.create_qp(hca.QPType.RC, send_cq=self.cq, recv_cq=self.cq)
        self.mr = self.pd.alloc_mr_buffer(BYTES)

    def card(self) -> str:
        return json.dumps([self.qp.info().to_bytes().hex(), self.mr.remote().to_bytes().hex()])

    def connect(self, card: str) -> None:
        info, remote = (bytes.fromhex(part) for part in json.loads(card))
        self.remote = hca.RemoteMemory.from_bytes(remote)
        # Retries end a second after the peer has.
        self.qp.connect(hca.QPInfo.from_bytes(info), timeout=15, retry_cnt=7)

    def post(self) -> None:
        length = self.rng.choice(LENGTHS)
        operation = self.rng.choice((hca.Write, hca.Read))
        request = operation(self.mr[:length], remote=self.remote[:length], signaled=True)
        self.qp.post_send(request)


def main() -> None:
    with hca.open() as dev:
        side = Side(dev, random.Random(sys.argv[1]))
        print(side.card(), flush=True)
        side.connect(sys.stdin.readline())
        print("connected", flush=True)
        while True:
            side.post()
            while not side.cq.poll(1):
                pass


if __name__ == "__main__":
    main()
