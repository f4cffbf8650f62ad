"""What does each call cost, in empty calls of an extension?

    python -m bench.calls [--rounds 9] [--count 2000]

Each figure stands between two readings of probe c (an empty nanobind post and poll, in a loop) and
is divided by their mean; the median of the rounds is printed, with the quartiles of the ratios.
Rounds during which the probe moved by more than a tenth do not count. Figures are for one work
request or one completion; nothing is on a wire.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

import softhca as hca
from bench.build import probe_module
from bench.ratios import Turn, summarise

BATCH = 64
DEPTH = 4096


class Bench:
    """One device; two connected queue pairs; and one in ERR, whose receives complete at once."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.device = hca.open()
        self.pd = self.device.alloc_pd()
        self.cq = self.device.create_cq(DEPTH * 2)
        self.other_cq = self.device.create_cq(DEPTH * 2)
        qps = [
            self.pd.create_qp(
                hca.QPType.RC, send_cq=cq, recv_cq=cq, max_send_wr=DEPTH, max_recv_wr=DEPTH
            )
            for cq in (self.cq, self.other_cq)
        ]
        qps[0].connect(qps[1].info())
        qps[1].connect(qps[0].info())
        self.qp, self.far = qps
        self.mr = self.pd.reg_mr(bytearray(4096))
        self.sge, self.remote = self.mr[0:64], self.mr.remote()[1024:1088]
        self.write = hca.Write(self.sge, remote=self.remote, signaled=True)
        self.quiet = hca.Write(self.sge, remote=self.remote)
        self.receive = hca.Recv(self.sge)
        self.room = hca.CompletionBuffer(BATCH)
        self.array = np.zeros(BATCH, hca.WC_DTYPE)
        self.records = np.zeros(BATCH, hca.SEND_DTYPE)
        self.records["opcode"] = hca.WrOpcode.RDMA_WRITE
        self.records["addr"], self.records["lkey"] = self.mr.addr, self.mr.lkey
        self.records["length"] = 64
        self.records["remote_addr"], self.records["rkey"] = self.remote.addr, self.remote.rkey
        self.records["send_flags"][-1] = hca.SendFlags.SIGNALED
        self.empty = probe_module("empty_calls").Empty()

    def close(self) -> None:
        """Closes the device and all that was made from it."""
        self.device.__exit__(None, None, None)

    def probe(self) -> float:
        post, poll = self.empty.post, self.empty.poll
        start = time.perf_counter()
        for _ in range(self.count):
            post(1)
            while not poll():
                pass
        return (time.perf_counter() - start) / self.count

    # --- one at a time

    def loop(self, call: Callable[[], object]) -> float:
        """Seconds of a call that takes nothing."""
        start = time.perf_counter()
        for _ in range(self.count):
            call()
        return (time.perf_counter() - start) / self.count

    def post_and_poll_into(self) -> float:
        post, poll, wr, room = self.qp.post_send, self.cq.poll_into, self.write, self.room
        start = time.perf_counter()
        for _ in range(self.count):
            post(wr)
            while not poll(room):
                pass
        return (time.perf_counter() - start) / self.count

    def post_and_poll_one(self) -> float:
        post, poll, wr = self.qp.post_send, self.cq.poll_one, self.write
        start = time.perf_counter()
        for _ in range(self.count):
            post(wr)
            while not poll():
                pass
        return (time.perf_counter() - start) / self.count

    def objects(self) -> float:
        post, poll, write = self.qp.post_send, self.cq.poll_one, hca.Write
        sge, remote, good = self.sge, self.remote, hca.WcStatus.SUCCESS
        start = time.perf_counter()
        for number in range(self.count):
            post(write(sge, remote=remote, wr_id=number, signaled=True))
            while not (wc := poll()):
                pass
            assert wc.status is good
            assert wc.wr_id == number
        return (time.perf_counter() - start) / self.count

    def post_send(self) -> float:
        """An unsignaled WRITE; one in so many is signaled and gives the slots back."""
        post, wr, room = self.qp.post_send, self.quiet, self.room
        spent, left = 0.0, self.count
        while left > 0:
            some = range(min(left, DEPTH - 1))
            start = time.perf_counter()
            for _ in some:
                post(wr)
            spent += time.perf_counter() - start
            left -= len(some)
            post(self.write)
            while not self.cq.poll_into(room):
                pass
        return spent / self.count

    def post_recv(self) -> float:
        spent, left = 0.0, self.count
        while left > 0:
            some = range(min(left, DEPTH))
            qp = self._flushing(recvs=0)
            post, wr = qp.post_recv, self.receive
            start = time.perf_counter()
            for _ in some:
                post(wr)
            spent += time.perf_counter() - start
            left -= len(some)
            while self.other_cq.poll(DEPTH):
                pass
            qp.close()
        return spent / self.count

    def _flushing(self, recvs: int) -> hca.QP:
        qp = self.pd.create_qp(
            hca.QPType.RC, send_cq=self.other_cq, recv_cq=self.other_cq, max_recv_wr=DEPTH
        )
        qp.modify(qp_state=hca.QPState.INIT, pkey_index=0, port_num=1, qp_access_flags=0)
        if recvs:
            qp.modify(qp_state=hca.QPState.ERR)
            qp.post_recv_many(self.receive, range(recvs))
        return qp

    def polls(self, poll: Callable[[], object], each: int = 1) -> float:
        """Seconds for each completion of polling what waits."""
        spent, left = 0.0, self.count
        while left > 0:
            count = min(left, DEPTH) // each * each or each
            qp = self._flushing(count)
            times = range(count // each)
            start = time.perf_counter()
            for _ in times:
                poll()
            spent += time.perf_counter() - start
            left -= count
            qp.close()
        return spent / self.count

    # --- many at once

    def many(self, post: Callable[[], object]) -> float:
        """Seconds for each of BATCH WRITEs, the last of which completes."""
        rounds = max(1, self.count // BATCH)
        poll, room = self.cq.poll_into, self.room
        start = time.perf_counter()
        for _ in range(rounds):
            post()
            while not poll(room):
                pass
        return (time.perf_counter() - start) / (rounds * BATCH)


def questions(bench: Bench) -> dict[str, Callable[[], float]]:
    """What is measured, by the words of the table."""
    qp, cq = bench.qp, bench.other_cq
    sge, remote, write = bench.sge, bench.remote, hca.Write
    listed = [bench.quiet] * (BATCH - 1) + [bench.write]
    ids = np.arange(BATCH, dtype="u8")
    single = hca.CompletionBuffer(1)
    mr, far = bench.mr, bench.mr.remote()
    return {
        "post_send + poll_into, 64 B WRITE": bench.post_and_poll_into,
        "post_send + poll_one, 64 B WRITE": bench.post_and_poll_one,
        "the same with a Write for each, status and wr_id looked at": bench.objects,
        "post_send, unsignaled WRITE": bench.post_send,
        "post_recv": bench.post_recv,
        "poll_into(CompletionBuffer), one waits": lambda: bench.polls(lambda: cq.poll_into(single)),
        "poll_one(), one waits": lambda: bench.polls(cq.poll_one),
        "poll(1), one waits": lambda: bench.polls(lambda: cq.poll(1)),
        "poll_into(CompletionBuffer), 64 wait, each": lambda: bench.polls(
            lambda: cq.poll_into(bench.room), BATCH
        ),
        "poll_into(array), 64 wait, each": lambda: bench.polls(
            lambda: cq.poll_into(bench.array), BATCH
        ),
        "poll(64), 64 wait, each": lambda: bench.polls(lambda: cq.poll(BATCH), BATCH),
        "post_send(list of 64), WRITE, each": lambda: bench.many(lambda: qp.post_send(listed)),
        "post_send_many(list of 64, wr_ids=0), each": lambda: bench.many(
            lambda: qp.post_send_many(listed, 0)
        ),
        "post_send_many(array of 64), each": lambda: bench.many(
            lambda: qp.post_send_many(bench.records)
        ),
        "post_send_many(array of 64, wr_ids=array), each": lambda: bench.many(
            lambda: qp.post_send_many(bench.records, ids)
        ),
        "Write(sge, remote=...)": lambda: bench.loop(lambda: write(sge, remote=remote)),
        "Write(sge, remote=..., wr_id=..., signaled=True)": lambda: bench.loop(
            lambda: write(sge, remote=remote, wr_id=7, signaled=True)
        ),
        "Recv(sge)": lambda: bench.loop(lambda: hca.Recv(sge)),
        "mr[0:64]": lambda: bench.loop(lambda: mr[0:64]),
        "remote[0:64]": lambda: bench.loop(lambda: far[0:64]),
        "an empty Python function, called as those above are": lambda: bench.loop(lambda: None),
    }


def main() -> None:
    """Measures in turns and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--count", type=int, default=2000)
    arguments = parser.parse_args()
    bench = Bench(arguments.count)
    asked = questions(bench)
    turns: dict[str, list[Turn]] = {name: [] for name in asked}
    for measure in asked.values():
        measure()
    for _ in range(arguments.rounds):
        for name, measure in asked.items():
            before, figure, after = bench.probe(), measure(), bench.probe()
            turns[name].append(Turn(before, figure, after))
    print(f"{'call':60} {'ns':>7} {'c':>7}  quartiles   turns")
    for name, taken in turns.items():
        found = summarise(taken)
        if found is None:
            print(f"{name:60} the machine changed in each of {len(taken)} turns")
            continue
        print(
            f"{name:60} {found.figure * 1e9:7.0f} {found.median:7.2f}  "
            f"{found.low:.2f}-{found.high:.2f}  {found.kept} of {len(taken)}"
        )
    bench.close()


if __name__ == "__main__":
    main()
