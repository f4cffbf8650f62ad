"""A side of softhca with very many queue pairs and regions."""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path

import softhca as hca
from bench import softhca_side
from bench.fast_calls import check, poll_of, room_for

# What a queue pair of a crowd holds at most.
DEPTH = 16
RECEIVES = 4
BYTES = 64
PAGE = 4096


def resident_bytes() -> int:
    """Memory of this process that is really there."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Side(softhca_side.Side):
    """What the worker does with a crowd. All share a pair of completion queues."""

    def __init__(self, number: int, link: str = "") -> None:
        super().__init__(number, link)
        self.send_cq = self.device.create_cq(1 << 16, timestamps=False)
        self.recv_cq = self.device.create_cq(1 << 16, timestamps=False)
        self.qps: list[hca.QP] = []
        self.regions: list[hca.MR] = []
        self.sends: list[hca.SendRequest] = []
        self.recvs: list[hca.Recv] = []

    def create(self, count: int) -> float:
        """Creates so many queue pairs; returns the seconds it took."""
        start = time.perf_counter()
        self.qps = [
            self.pd.create_qp(
                hca.QPType.RC,
                send_cq=self.send_cq,
                recv_cq=self.recv_cq,
                max_send_wr=DEPTH,
                max_recv_wr=DEPTH,
            )
            for _ in range(count)
        ]
        return time.perf_counter() - start

    def infos(self) -> list[hca.QPInfo]:
        """What the other side must know of each."""
        return [qp.info() for qp in self.qps]

    def join_all(self, infos: list[hca.QPInfo]) -> float:
        """Connects each; returns the seconds it took."""
        start = time.perf_counter()
        for qp, info in zip(self.qps, infos, strict=True):
            qp.connect(info)
        return time.perf_counter() - start

    def resident(self) -> int:
        """Bytes of memory that this process uses."""
        gc.collect()
        return resident_bytes()

    def register(self, count: int) -> None:
        """Registers so many regions of a page, and posts receives to every queue pair."""
        self.memory = bytearray(count * PAGE)
        whole = memoryview(self.memory)
        self.regions = [
            self.pd.reg_mr(whole[first : first + PAGE]) for first in range(0, count * PAGE, PAGE)
        ]
        self.sends = [hca.Send(mr[:BYTES], signaled=True) for mr in self.regions]
        self.recvs = [hca.Recv(mr[PAGE - BYTES :]) for mr in self.regions]
        for number, qp in enumerate(self.qps):
            qp.post_recv([self.recvs[number % count]] * RECEIVES)

    def go_round(self, first_qp: int, qps: int, regions: int, count: int) -> float:
        """Seconds of half a round trip of SENDs that go through so many pairs and regions in turn.

        Each is signaled, and each receive is posted again at once.
        """
        posts = [qp.post_send for qp in self.qps[first_qp : first_qp + qps]]
        post_recvs = [qp.post_recv for qp in self.qps[first_qp : first_qp + qps]]
        sends, recvs = self.sends[:regions], self.recvs[:regions]
        sent, received = poll_of(self.send_cq), poll_of(self.recv_cq)
        went, came = room_for(1), room_for(1)
        # Steps that have no divisor in common with the counts, so that neighbours are not next.
        qp_at = region_at = 0
        start = time.perf_counter()
        for _ in range(count):
            if self.number == 0:
                posts[qp_at](sends[region_at])
            while not received(came):
                pass
            if self.number == 1:
                posts[qp_at](sends[region_at])
            while not sent(went):
                pass
            post_recvs[qp_at](recvs[region_at])
            qp_at = (qp_at + 7) % qps
            region_at = (region_at + 13) % regions
        spent = time.perf_counter() - start
        check(went)
        check(came)
        return spent / count / 2
