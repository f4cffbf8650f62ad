"""Contexts keep their word while callbacks block, raise, re-post, destroy and free, all at once."""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import softhca as hca

from .callbacks import PATIENCE_S, THREADED, no_connection, passes

CONTEXTS = [hca.PollContext.DIRECT, *THREADED]
# Receives that are posted to each queue pair at first, by how many completion queues there are.
COUNTS = {1: 1500, 16: 100, 1000: 4}
QPS_PER_CQ = 2


@contextmanager
def echo() -> Iterator[Callable[[], None]]:
    """Yields a function that blocks until another thread has run."""
    asked: queue.SimpleQueue[threading.Event | None] = queue.SimpleQueue()

    def answer() -> None:
        while (event := asked.get()) is not None:
            event.set()

    def block() -> None:
        event = threading.Event()
        asked.put(event)
        assert passes(event)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield block
    finally:
        asked.put(None)
        thread.join()


class Storm:
    """What all callbacks of a test share.

    Attributes:
        posted: Work requests that were taken.
        told: Calls of done() and forgotten().
        raised: Callbacks that raised.
        heard: Calls of the queues' hooks with what was raised.
        faults: What must not have happened.
    """

    def __init__(self, choose: random.Random, block: Callable[[], None]) -> None:
        self.choose = choose
        self.block = block
        self.posted = 0
        self.told = 0
        self.raised = 0
        self.heard = 0
        self.faults: list[str] = []
        self.changed = threading.Condition()
        self.everything_posted = False

    def over(self) -> bool:
        return self.everything_posted and self.told == self.posted

    def note(self, *, posted: int = 0, told: int = 0, raised: int = 0, heard: int = 0) -> None:
        """Counts; callbacks of several queues do so at the same time."""
        with self.changed:
            self.posted += posted
            self.told += told
            self.raised += raised
            self.heard += heard
            self.changed.notify_all()


class Shore:
    """A completion queue and its queue pairs."""

    def __init__(self, storm: Storm, pd: hca.PD, cq: hca.CallbackCQ) -> None:
        self.storm = storm
        self.cq = cq
        self.inside = 0
        self.ledgers = [Ledger(self, no_connection(pd, cq)) for _ in range(QPS_PER_CQ)]

    def free(self) -> None:
        """In a callback: everything goes, and this callback is the last one."""
        for ledger in self.ledgers:
            ledger.destroy()
        self.cq.free()


class Ledger:
    """What was posted to a queue pair, and what its callbacks were told."""

    def __init__(self, shore: Shore, qp: hca.QP) -> None:
        self.shore = shore
        self.qp = qp
        self.lock = threading.Lock()  # Numbers are in the order of posting.
        self.numbers = 0
        self.refused: list[Drop] = []
        self.done: list[int] = []
        self.done_at_its_end: int | None = None

    def post(self, deed: str) -> None:
        storm = self.shore.storm
        with self.lock:
            drop = Drop(self, self.numbers, deed)
            storm.note(posted=1)
            try:
                self.qp.post_recv(hca.Recv(cqe=drop, wr_id=drop.number))
            except hca.VerbsError as error:  # A callback has destroyed it, or is about to.
                assert "no such object" in str(error) or self.qp.closed, error
                storm.note(posted=-1)
                self.refused.append(drop)
            else:
                self.numbers += 1

    def destroy(self) -> None:
        """In a callback of the same completion queue, so that no other can be running."""
        self.qp.close()
        if self.done_at_its_end is None:
            self.done_at_its_end = len(self.done)


class Drop(hca.Cqe):
    """A work request that is told once of its completion, or once that there will be none."""

    def __init__(self, ledger: Ledger, number: int, deed: str) -> None:
        super().__init__()
        self.ledger = ledger
        self.number = number
        self.deed = deed
        self.told = 0

    def done(self, cq: hca.CQ, wc: hca.WC) -> None:
        shore = self.ledger.shore
        storm = shore.storm
        shore.inside += 1
        if shore.inside != 1:
            storm.faults.append("callbacks of one queue at the same time")
        if cq is not shore.cq or wc.wr_id != self.number or wc.qp_num != self.ledger.qp.qpn:
            storm.faults.append("a completion for somebody else")
        self.ledger.done.append(self.number)
        try:
            self._act()
        finally:
            shore.inside -= 1
            self._tell()

    def _act(self) -> None:
        shore = self.ledger.shore
        if self.deed == "block":
            shore.storm.block()
        elif self.deed == "raise":
            shore.storm.note(raised=1)
            raise RuntimeError(f"of {self.number}")
        elif self.deed == "post":
            self.ledger.post("nothing")
        elif self.deed == "destroy":
            self.ledger.destroy()
        elif self.deed == "destroy the other":
            shore.ledgers[shore.ledgers[0] is self.ledger].destroy()
        elif self.deed == "free":
            shore.free()

    def forgotten(self) -> None:
        self._tell()

    def _tell(self) -> None:
        self.told += 1
        if self.told != 1:
            self.ledger.shore.storm.faults.append(f"told {self.told} times")
        self.ledger.shore.storm.note(told=1)


def deeds(choose: random.Random, count: int) -> Iterator[str]:
    """What the callbacks of a queue pair do; the end of some comes in one of the last."""
    last = choose.choice(["nothing", "destroy", "destroy the other", "free"])
    at = choose.randrange(count * 3 // 4, count)
    for number in range(count):
        if number == at:
            yield last
        else:
            yield choose.choices(["nothing", "raise", "post", "block"], [50, 20, 20, 10])[0]


@pytest.mark.parametrize("queues", COUNTS)
@pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: context.name)
def test_each_work_request_is_told_once_and_in_order(context: hca.PollContext, queues: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    choose = random.Random(seed)
    count = COUNTS[queues]
    with echo() as block, hca.open() as device:
        pd = device.alloc_pd()
        storm = Storm(choose, block)

        def hear(error: BaseException, wc: hca.WC, wr: object) -> None:
            assert isinstance(wr, hca.Recv)
            storm.note(heard=str(error) == f"of {wc.wr_id}" == f"of {wr.wr_id}")

        shores = []
        for index in range(queues):
            cq = device.alloc_cq(
                2 * QPS_PER_CQ * count,
                poll_context=context,
                comp_vector=index % device.num_comp_vectors,
                on_exception=hear,
            )
            shores.append(Shore(storm, pd, cq))
        ledgers = [ledger for shore in shores for ledger in shore.ledgers]
        for work in zip(*(deeds(choose, count) for _ in ledgers), strict=True):
            for ledger, deed in zip(ledgers, work, strict=True):
                ledger.post(deed)
        with storm.changed:
            storm.everything_posted = True
        if context is hca.PollContext.DIRECT:
            while not storm.over():
                assert sum(one.cq.process_direct() for one in shores if not one.cq.closed)
        with storm.changed:
            assert storm.changed.wait_for(storm.over, PATIENCE_S), (storm.told, storm.posted)
        for ledger in ledgers:
            ledger.qp.close()
        for shore in shores:
            shore.cq.free()
        assert not storm.faults
        assert storm.told == storm.posted
        assert storm.heard == storm.raised
        assert device.adapter.cqes_under_way == 0
        for ledger in ledgers:
            assert not any(drop.told for drop in ledger.refused)
            assert ledger.done == sorted(set(ledger.done))
            if ledger.done_at_its_end is None:
                assert ledger.done == list(range(ledger.numbers))
            else:
                assert len(ledger.done) == ledger.done_at_its_end
