"""A side of softhca: an adapter in a process of its own, and queue pairs to the other side."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import softhca as hca
from bench.fast_calls import (
    counting_poller,
    list_poster,
    open_device,
    poller,
    poster,
    receive_poster,
)

# Receives that are always posted, and work requests that a send queue holds.
DEPTH = 1024
# So many are signaled, acknowledged to the peer and posted again at a time.
BATCH = 16
LIST = 64


@dataclass(slots=True)
class Pair:
    """A queue pair, and what it sends from and receives into."""

    qp: hca.QP
    size: int
    source: hca.MR
    target: hca.MR
    remote: hca.RemoteMemory | None = None
    recv: hca.Recv = field(init=False)

    def __post_init__(self) -> None:
        self.recv = hca.Recv(self.target[: self.size])

    def send(self, signaled: bool) -> hca.SendRequest:
        return hca.Send(self.source[: self.size], signaled=signaled)

    def moving(self, op: str) -> hca.SendRequest:
        """A signaled work request that moves the whole buffer."""
        if op == "SEND":
            return self.send(True)
        assert self.remote is not None
        make = {"WRITE": hca.Write, "READ": hca.Read}[op]
        near = self.source if op == "WRITE" else self.target
        return make(near[: self.size], remote=self.remote, signaled=True)


class Side:
    """What the worker does with softhca.

    Args:
        number: 0 for the side that measures.
        link: "udp" to keep the adapter from taking a shorter way.
        addresses: Of either side's adapter; empty: a free loopback address.
    """

    def __init__(self, number: int, link: str = "", *addresses: str) -> None:
        self.number = number
        self.device = open_device(link, addresses[number] if addresses else "")
        self.pd = self.device.alloc_pd()
        self.pairs: dict[str, Pair] = {}

    def make(
        self, key: str, size: int, memory: str
    ) -> tuple[hca.QPInfo, hca.RemoteMemory, hca.RemoteMemory]:
        """Makes a queue pair and buffers; `memory` is "allocated" by softhca or the caller's "own".

        Returns what the other side must know.
        """
        cqs = [self.device.create_cq(4 * DEPTH) for _ in range(2)]
        qp = self.pd.create_qp(
            hca.QPType.RC, send_cq=cqs[0], recv_cq=cqs[1], max_send_wr=DEPTH, max_recv_wr=DEPTH
        )
        pair = Pair(qp, size, self._region(size, memory, 1), self._region(size, memory, 2))
        self.pairs[key] = pair
        # A READ takes what the source holds, a WRITE fills the target.
        return qp.info(), pair.target.remote(), pair.source.remote()

    def _region(self, size: int, memory: str, filling: int) -> hca.MR:
        if memory == "allocated":
            buffer = self.pd.alloc_mr_buffer(size)
            mr: hca.MR = buffer
            view = memoryview(buffer.buffer)
        else:
            mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            mr = self.pd.reg_mr(mapping)
            view = memoryview(mapping)
        view[:size] = bytes([filling]) * size
        return mr

    def join(self, key: str, info: hca.QPInfo, remote: hca.RemoteMemory) -> None:
        """Connects the queue pair to the other side's, and posts its receives."""
        pair = self.pairs[key]
        pair.qp.connect(info)
        pair.remote = remote
        for _ in range(DEPTH // LIST):
            pair.qp.post_recv([pair.recv] * LIST)

    def ping_pong(self, key: str, count: int) -> float:
        """Seconds of half a round trip of SENDs, each way to the receiver's completion."""
        pair = self.pairs[key]
        post, post_signaled = poster(pair.qp, pair.send(False)), poster(pair.qp, pair.send(True))
        received, sent = poller(pair.qp.recv_cq), poller(pair.qp.send_cq)
        post_receives = receive_poster(pair.qp, pair.recv, BATCH)
        turn = self._ping if self.number == 0 else self._pong
        start = time.perf_counter()
        for _ in range(count // BATCH):
            turn(post, received, BATCH - 1)
            turn(post_signaled, received, 1)
            while not sent():
                pass
            post_receives()
        return (time.perf_counter() - start) / (count // BATCH * BATCH) / 2

    @staticmethod
    def _ping(post: Callable[[], object], received: Callable[[], object], count: int) -> None:
        for _ in range(count):
            post()
            while not received():
                pass

    @staticmethod
    def _pong(post: Callable[[], object], received: Callable[[], object], count: int) -> None:
        for _ in range(count):
            while not received():
                pass
            post()

    def rate(self, key: str, count: int, as_list: bool) -> float:
        """SENDs a second, posted in a call each or as lists; side 1 receives."""
        if self.number == 1:
            return self._receive(key, count)
        pair = self.pairs[key]
        wrs = [pair.send(False)] * (LIST - 1) + [pair.send(True)]
        post_list = list_poster(pair.qp, wrs)
        post, post_signaled = poster(pair.qp, wrs[0]), poster(pair.qp, wrs[-1])
        sent = counting_poller(pair.qp.send_cq, LIST)
        lists = count // LIST
        start = time.perf_counter()
        under_way = 0
        for _ in range(lists):
            if as_list:
                post_list()
            else:
                for _ in range(LIST - 1):
                    post()
                post_signaled()
            under_way += 1
            while under_way > DEPTH // LIST - 2:
                under_way -= sent()
        while under_way:
            under_way -= sent()
        return lists * LIST / (time.perf_counter() - start)

    def _receive(self, key: str, count: int) -> float:
        pair = self.pairs[key]
        received = counting_poller(pair.qp.recv_cq, 4 * LIST)
        post_receives = receive_poster(pair.qp, pair.recv, LIST)
        missing = count // LIST * LIST
        spent = 0
        start = time.perf_counter()
        while missing:
            taken = received()
            missing -= taken
            spent += taken
            while spent >= LIST:
                post_receives()
                spent -= LIST
        return count / (time.perf_counter() - start)

    def stream(self, key: str, op: str, count: int, window: int) -> float:
        """Bytes a second of WRITEs, READs or SENDs of the pair's size, so many under way."""
        pair = self.pairs[key]
        if self.number == 1:
            if op == "SEND":
                self._receive_stream(pair, count)
            return 0.0
        post = poster(pair.qp, pair.moving(op))
        completed = counting_poller(pair.qp.send_cq, window)
        start = time.perf_counter()
        posted = done = 0
        while done < count:
            while posted < count and posted - done < window:
                post()
                posted += 1
            done += completed()
        return pair.size * count / (time.perf_counter() - start)

    def _receive_stream(self, pair: Pair, count: int) -> None:
        received = counting_poller(pair.qp.recv_cq, LIST)
        done = 0
        while done < count:
            taken = received()
            if taken:
                pair.qp.post_recv([pair.recv] * taken)
                done += taken

    def was_filled(self, key: str) -> bool:
        """Whether what the other side sends, or lets read, has come here, all of it."""
        pair = self.pairs[key]
        view = memoryview(pair.target.obj)  # type: ignore[arg-type]
        return bytes(view[: pair.size]) == b"\x01" * pair.size
