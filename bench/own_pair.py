"""Two queue pairs of one adapter, in one process."""

from __future__ import annotations

import time

import softhca as hca
from bench.closing import Closes
from bench.fast_calls import check, open_device, poll_of, poll_one_of, room_for

BYTES = 64


class OwnPair(Closes):
    """Two connected queue pairs of one adapter, and a WRITE between them."""

    def __init__(self) -> None:
        self.device = open_device()
        self.pd = self.device.alloc_pd()
        self.cq = self.device.create_cq(64, timestamps=False)
        self.qp = self.pd.create_qp(hca.QPType.RC, send_cq=self.cq, recv_cq=self.cq, max_send_wr=64)
        self.far = self.pd.create_qp(hca.QPType.RC, send_cq=self.cq, recv_cq=self.cq)
        self.qp.connect(self.far.info())
        self.far.connect(self.qp.info())
        self.source = self.pd.reg_mr(bytearray(b"x" * BYTES))
        self.target = self.pd.reg_mr(bytearray(BYTES))

    def close(self) -> None:
        """Closes the device and what is on it."""
        for thing in (self.source, self.target, self.qp, self.far, self.cq, self.pd, self.device):
            thing.close()

    def reused(self, count: int) -> float:
        """Seconds of posting a WRITE that was made before and polling until it has completed."""
        wr = hca.Write(self.source[:], remote=self.target.remote(), signaled=True)
        post, poll, room = self.qp.post_send, poll_of(self.cq), room_for(1)
        start = time.perf_counter()
        for _ in range(count):
            post(wr)
            while not poll(room):
                pass
        spent = (time.perf_counter() - start) / count
        check(room)
        return spent

    def objects(self, count: int) -> float:
        """The same with a work request of its own for each, and a completion to look at."""
        post, poll, write = self.qp.post_send, poll_one_of(self.cq), hca.Write
        source, remote, good = self.source[:], self.target.remote(), hca.WcStatus.SUCCESS
        start = time.perf_counter()
        for number in range(count):
            post(write(source, remote=remote, wr_id=number, signaled=True))
            while not (wc := poll()):
                pass
            if wc.status != good or wc.wr_id != number:
                wc.raise_for_status()
        return (time.perf_counter() - start) / count
