"""A side of softhca: an adapter in a process of its own, and queue pairs to the other side."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import softhca as hca
from bench.build import probe_module
from bench.fast_calls import Poll, check, open_device, poll_of, room_for

Post = Callable[[hca.SendRequest], None]

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
        """Makes a queue pair and buffers.

        `memory` is "allocated" by softhca, the caller's "own", or "own, small pages".
        Returns what the other side must know.
        """
        cqs = [self.device.create_cq(4 * DEPTH, timestamps=False) for _ in range(2)]
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
            if memory == "own, small pages":
                mapping.madvise(mmap.MADV_NOHUGEPAGE)
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
        qp, plain, signaled = pair.qp, pair.send(False), pair.send(True)
        received, sent = poll_of(qp.recv_cq), poll_of(qp.send_cq)
        came, went = room_for(1), room_for(1)
        recvs = [pair.recv] * BATCH
        pings = self.number == 0
        turn = self._ping if pings else self._pong

        def settle() -> None:
            """Takes the last batch's completion, and posts its receives again."""
            while not sent(went):
                pass
            qp.post_recv(recvs)

        start = time.perf_counter()
        for batch in range(count // BATCH):
            if not pings:
                self._await(received, came)
            qp.post_send(plain)
            if batch:
                settle()  # Behind a message that has left, while the other side works.
            if pings:
                self._await(received, came)
            turn(qp.post_send, plain, received, came, BATCH - 2)
            turn(qp.post_send, signaled, received, came, 1)
        if count >= BATCH:
            settle()
        spent = time.perf_counter() - start
        check(came)
        check(went)
        return spent / (count // BATCH * BATCH) / 2

    @staticmethod
    def _await(received: Poll, came: Any) -> None:
        while not received(came):
            pass

    @staticmethod
    def _ping(post: Post, wr: hca.SendRequest, received: Poll, came: Any, count: int) -> None:
        for _ in range(count):
            post(wr)
            while not received(came):
                pass

    @staticmethod
    def _pong(post: Post, wr: hca.SendRequest, received: Poll, came: Any, count: int) -> None:
        for _ in range(count):
            while not received(came):
                pass
            post(wr)

    def rate(self, key: str, count: int, as_list: bool) -> float:
        """SENDs a second, posted in a call each or as lists; side 1 receives."""
        lists = count // LIST
        pair = self.pairs[key]
        if self.number == 1:
            self._receive(pair, lists * LIST)
            return 0.0
        wrs = [pair.send(False)] * (LIST - 1) + [pair.send(True)]
        post, sent, went = pair.qp.post_send, poll_of(pair.qp.send_cq), room_for(LIST)
        under_way = 0
        start = time.perf_counter()
        for _ in range(lists):
            if as_list:
                post(wrs)
            else:
                for wr in wrs:
                    post(wr)
            under_way += 1
            while under_way > DEPTH // LIST - 2:
                under_way -= sent(went)
        while under_way:
            taken = sent(went)
            under_way -= taken
            check(went, taken)
        return lists * LIST / (time.perf_counter() - start)

    def stream(self, key: str, op: str, count: int, window: int) -> float:
        """Bytes a second of WRITEs, READs or SENDs of the pair's size, so many under way."""
        pair = self.pairs[key]
        if self.number == 1:
            if op == "SEND":
                self._receive(pair, count)
            return 0.0
        wrs, post, went = [pair.moving(op)] * window, pair.qp.post_send, room_for(window)
        completed = poll_of(pair.qp.send_cq)
        posted = done = taken = 0
        # A call costs Python as much as copying some KiB: a quarter of the window waits for one.
        least = max(window // 4, 1)
        start = time.perf_counter()
        while done < count:
            room = min(window - (posted - done), count - posted)
            if room >= min(least, max(count - posted, 1)):
                post(wrs[:room])
                posted += room
            if taken := completed(went):
                done += taken
                check(went, taken)
        return pair.size * count / (time.perf_counter() - start)

    def streams(self, keys: Sequence[str], count: int) -> float:
        """Bytes a second of WRITEs by all these pairs at once, of each so many, one under way."""
        if self.number == 1:
            return 0.0
        pairs = [self.pairs[key] for key in keys]
        lanes = [(pair, pair.moving("WRITE"), poll_of(pair.qp.send_cq)) for pair in pairs]
        went = room_for(1)
        start = time.perf_counter()
        for pair, wr, _ in lanes:
            pair.qp.post_send(wr)
        left = dict.fromkeys(keys, count)
        while left:
            for key, (pair, wr, completed) in zip(keys, lanes, strict=True):
                if key not in left or not completed(went):
                    continue
                check(went, 1)
                left[key] -= 1
                if left[key]:
                    pair.qp.post_send(wr)
                else:
                    del left[key]
        return sum(pair.size for pair in pairs) * count / (time.perf_counter() - start)

    def place_of_source(self, key: str) -> tuple[int, int]:
        """The process, and the address of what the pair sends there."""
        return os.getpid(), self.pairs[key].source.addr

    def bare_copy(self, key: str, process: int, address: int, count: int) -> float:
        """Bytes a second of bare process_vm_readv of the other side's source into the target."""
        pair = self.pairs[key]
        read_often = probe_module("cross_copy").read_often
        spent = float(read_often(process, address, pair.target.addr, pair.size, count))
        return pair.size * count / spent

    def _receive(self, pair: Pair, count: int) -> None:
        """Takes so many messages, and posts their receives again, a list at a time."""
        received, room = poll_of(pair.qp.recv_cq), room_for(4 * LIST)
        recvs = [pair.recv] * LIST
        spent = taken = 0
        while count:
            if taken := received(room):
                check(room, taken)
                count -= taken
                spent += taken
            while spent >= LIST:
                pair.qp.post_recv(recvs)
                spent -= LIST
        if spent:
            pair.qp.post_recv(recvs[:spent])

    def was_filled(self, key: str) -> bool:
        """Whether what the other side sends, or lets read, has come here, all of it."""
        pair = self.pairs[key]
        view = memoryview(pair.target.obj)
        return bytes(view[: pair.size]) == b"\x01" * pair.size
