"""Messages that wait for their target at the same time: in order, each whole or not at all."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from tests.two_processes.commanded import BYTES, CQ_DEPTH, DEPTH, own_memory, unmap

import softhca as hca
from softhca import QPInfo, QPType, Read, RemoteMemory, Send, Write

SEED = int(os.environ.get("SOFTHCA_TEST_SEED", random.SystemRandom().randrange(1 << 31)))
ROUNDS = 25
EACH = 2 * mmap.PAGESIZE
# As long as the target may stand still.
TIMEOUT_CODE = 16


class Scene:
    """A queue pair here, and one in a process that can be stopped."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.two_processes.commanded"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.callback(self.end)
        device = stack.enter_context(hca.open())
        pd = stack.enter_context(device.alloc_pd())
        self.cq = stack.enter_context(device.create_cq(2 * DEPTH))
        self.qp = stack.enter_context(
            pd.create_qp(
                QPType.RC, send_cq=self.cq, recv_cq=self.cq, max_send_wr=DEPTH, max_recv_wr=1
            )
        )
        self.memory = own_memory()
        self.mr = stack.enter_context(pd.reg_mr(self.memory))
        there = self.hear()
        self.remote = RemoteMemory.from_bytes(bytes.fromhex(there["remote"]))
        self.tell(connect=self.qp.info().to_bytes().hex())
        self.qp.connect(
            QPInfo.from_bytes(bytes.fromhex(there["info"])), timeout=TIMEOUT_CODE, rnr_retry=7
        )
        # Both know by now how they reach each other.
        assert self.statuses(self.post([self.write(0, 0, 1)])) == ["SUCCESS"]

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()

    def hear(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def tell(self, **order: Any) -> Any:
        print(json.dumps(order), file=self.process.stdin, flush=True)
        return self.hear()

    def content(self, begin: int = 0, end: int = BYTES) -> bytes:
        """What the target's memory holds."""
        return bytes.fromhex(self.tell(content=[begin, end]))

    @contextlib.contextmanager
    def standstill(self) -> Iterator[None]:
        """What is posted meanwhile is there at once when the target goes on."""
        os.kill(self.process.pid, signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)
        yield
        os.kill(self.process.pid, signal.SIGCONT)

    def write(self, here: int, there: int, size: int) -> hca.SendRequest:
        return Write(
            self.mr[here : here + size], remote=self.remote[there : there + size], signaled=True
        )

    def read(self, here: int, there: int, size: int) -> hca.SendRequest:
        return Read(
            self.mr[here : here + size], remote=self.remote[there : there + size], signaled=True
        )

    def post(self, requests: Sequence[hca.SendRequest]) -> int:
        self.qp.post_send(requests)
        return len(requests)

    def statuses(self, count: int) -> list[str]:
        """Of the next completions, in their order."""
        names: list[str] = []
        until = time.monotonic() + 60
        while len(names) < count:
            names += [wc.status.name for wc in self.cq.poll(count - len(names))]
            assert time.monotonic() < until, f"{names}, and no more"
        return names


@pytest.fixture
def scene() -> Iterator[Scene]:
    with contextlib.ExitStack() as stack:
        yield Scene(stack)


@pytest.mark.parametrize("op", ["WRITE", "READ"])
def test_what_overlaps_is_as_if_each_came_alone(scene: Scene, op: str) -> None:
    print(f"SOFTHCA_TEST_SEED={SEED}")
    rng = random.Random(SEED)
    near, far = bytearray(rng.randbytes(BYTES)), bytearray(BYTES)
    scene.memory[:] = bytes(near)
    assert scene.statuses(scene.post([scene.write(0, 0, BYTES)])) == ["SUCCESS"]
    far[:] = near
    for _ in range(ROUNDS):
        requests = []
        # From one half to the other, in a place so small that they overlap.
        first = rng.randrange(BYTES // 2 - 4 * EACH)
        for _ in range(rng.randint(2, DEPTH // 2)):
            size = rng.randint(1025, EACH)
            source = rng.randrange(BYTES // 2, BYTES - size)
            # Often at the same place, or a few bytes beside it.
            place = first + rng.choice([0, 0, rng.randrange(20), rng.randrange(2 * EACH)])
            if op == "WRITE":
                requests.append(scene.write(source, place, size))
                far[place : place + size] = near[source : source + size]
            else:
                requests.append(scene.read(place, source, size))
                near[place : place + size] = far[source : source + size]
        with scene.standstill():
            count = scene.post(requests)
        assert set(scene.statuses(count)) == {"SUCCESS"}
        assert scene.content() == far if op == "WRITE" else scene.memory[:] == bytes(near)


def prepared(scene: Scene, count: int) -> list[hca.SendRequest]:
    """WRITEs of the numbers from 1 on, to places that follow each other."""
    for number in range(count):
        scene.memory[number * EACH : (number + 1) * EACH] = bytes([number + 1]) * EACH
    return [scene.write(number * EACH, number * EACH, EACH) for number in range(count)]


def landed(scene: Scene, number: int) -> bytes:
    return scene.content(number * EACH, (number + 1) * EACH)


def check_written(scene: Scene, count: int, until: int) -> None:
    """The first ones are there, and nothing of those behind the one that failed."""
    for number in range(until):
        assert landed(scene, number) == bytes([number + 1]) * EACH
    for number in range(until + 1, count):
        assert landed(scene, number) == bytes(EACH)


def test_behind_a_source_that_is_gone_nothing_is_written(scene: Scene) -> None:
    requests = prepared(scene, 8)
    scene.post([scene.write(BYTES - EACH, 0, EACH)])
    assert scene.statuses(1) == ["SUCCESS"]
    unmap(scene.mr.addr + 3 * EACH, mmap.PAGESIZE)
    with scene.standstill():
        count = scene.post(requests)
    assert scene.statuses(count) == ["SUCCESS"] * 3 + ["LOC_PROT_ERR"] + ["WR_FLUSH_ERR"] * 4
    check_written(scene, 8, 3)


def test_behind_a_place_that_is_gone_nothing_is_written(scene: Scene) -> None:
    requests = prepared(scene, 8)
    # Its end, which comes last.
    scene.tell(unmap=4 * EACH + mmap.PAGESIZE)
    with scene.standstill():
        count = scene.post(requests)
    assert scene.statuses(count) == ["SUCCESS"] * 4 + ["REM_ACCESS_ERR"] + ["WR_FLUSH_ERR"] * 3
    for number in (5, 6, 7):
        assert landed(scene, number) == bytes(EACH)
    assert landed(scene, 3) == bytes([4]) * EACH


def test_behind_a_request_that_is_refused_nothing_is_written(scene: Scene) -> None:
    requests = prepared(scene, 8)
    there = scene.remote[5 * EACH : 6 * EACH]
    wrong = RemoteMemory(addr=there.addr, rkey=there.rkey ^ 1, length=there.length)
    requests[5] = Write(scene.mr[5 * EACH : 6 * EACH], remote=wrong, signaled=True)
    with scene.standstill():
        count = scene.post(requests)
    assert scene.statuses(count) == ["SUCCESS"] * 5 + ["REM_ACCESS_ERR"] + ["WR_FLUSH_ERR"] * 2
    check_written(scene, 8, 5)


def test_behind_a_completion_that_finds_no_room_nothing_is_written(scene: Scene) -> None:
    requests = prepared(scene, CQ_DEPTH + 2)
    scene.tell(receive=[[number * EACH, EACH] for number in range(CQ_DEPTH + 1)])
    for number in range(CQ_DEPTH + 1):
        requests[number] = Send(scene.mr[number * EACH : (number + 1) * EACH], signaled=True)
    with scene.standstill():
        count = scene.post(requests)
    statuses = scene.statuses(count)
    assert statuses[:CQ_DEPTH] == ["SUCCESS"] * CQ_DEPTH
    assert statuses[-1] != "SUCCESS"
    assert landed(scene, CQ_DEPTH - 1) == bytes([CQ_DEPTH]) * EACH
    assert landed(scene, CQ_DEPTH + 1) == bytes(EACH)


def test_sends_that_follow_each_other_fill_their_receives(scene: Scene) -> None:
    print(f"SOFTHCA_TEST_SEED={SEED}")
    rng = random.Random(SEED)
    scene.memory[:] = rng.randbytes(BYTES)
    places = [[number * EACH, EACH] for number in range(CQ_DEPTH)]
    rng.shuffle(places)
    scene.tell(receive=places)
    sizes = [rng.randint(1025, EACH) for _ in places]
    starts = [rng.randrange(BYTES - EACH) for _ in places]
    requests = [
        Send(scene.mr[start : start + size], signaled=True)
        for start, size in zip(starts, sizes, strict=True)
    ]
    with scene.standstill():
        count = scene.post(requests)
    assert scene.statuses(count) == ["SUCCESS"] * CQ_DEPTH
    for (place, _), start, size in zip(places, starts, sizes, strict=True):
        assert scene.content(place, place + size) == scene.memory[start : start + size]
