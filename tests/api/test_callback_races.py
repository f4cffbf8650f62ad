"""A work request is refused, or told once: also if its queue goes at the moment it is posted."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import softhca as hca
from softhca import PollContext, QPState, QPType

from .callbacks import PATIENCE_S, kept

ROUNDS = 30


class Told(hca.Cqe):
    """Counts what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.times = 0

    def done(self, cq: hca.CQ, wc: hca.WC) -> None:
        self.times += 1

    def forgotten(self) -> None:
        self.times += 1


class Poster(threading.Thread):
    """Posts until it is refused for good.

    Attributes:
        posted: What was taken.
        refused: What was not.
    """

    def __init__(
        self,
        post: Callable[[hca.Recv], None],
        some_posted: threading.Event,
        over: threading.Event,
    ) -> None:
        super().__init__()
        self.posted: list[Told] = []
        self.refused: list[Told] = []
        self._post = post
        self._some_posted = some_posted
        self._over = over

    def run(self) -> None:
        while True:
            told = Told()
            try:
                self._post(hca.Recv(cqe=told))
            except hca.VerbsError:
                self.refused.append(told)
                if self._over.is_set():
                    break
            else:
                self.posted.append(told)
                self._some_posted.set()

    def check(self) -> None:
        assert {told.times for told in self.posted} <= {1}
        assert {told.times for told in self.refused} == {0}


@contextmanager
def posters_of(
    post: Callable[[hca.Recv], None], count: int
) -> Iterator[tuple[list[Poster], threading.Event]]:
    """Posters, and the event that any of them sets: the first may come to a queue that is full.

    They end with the block, also if that fails: left alone they would fill the memory.
    """
    some_posted, over = threading.Event(), threading.Event()
    posters = [Poster(post, some_posted, over) for _ in range(count)]
    for poster in posters:
        poster.start()
    try:
        yield posters, some_posted
    finally:
        over.set()
        for poster in posters:
            poster.join()


@pytest.mark.parametrize("kind", ["qp", "srq"])
def test_posting_while_the_queue_is_destroyed(kind: str) -> None:
    with hca.open() as device:
        pd = device.alloc_pd()
        for _ in range(ROUNDS):
            cq = device.alloc_cq(16, poll_context=PollContext.DIRECT)
            if kind == "srq":
                queue: hca.SRQ | hca.QP = pd.create_srq(max_wr=4096)
            else:
                queue = pd.create_qp(QPType.RC, send_cq=cq, recv_cq=cq, max_recv_wr=4096)
                queue.modify(qp_state=QPState.INIT, pkey_index=0, port_num=1, qp_access_flags=0)
            kept.extend((pd, cq))
            with posters_of(queue.post_recv, 2) as (posters, some_posted):
                assert some_posted.wait(PATIENCE_S)
                queue.close()
            for poster in posters:
                poster.check()
            assert device.adapter.cqes_under_way == 0


def test_posting_while_the_queue_pair_is_reset() -> None:
    with hca.open() as device:
        cq = device.alloc_cq(16, poll_context=PollContext.DIRECT)
        pd = device.alloc_pd()
        qp = pd.create_qp(QPType.RC, send_cq=cq, recv_cq=cq, max_recv_wr=4096)
        kept.extend((pd, cq))
        with posters_of(qp.post_recv, 2) as (posters, _):
            for _ in range(ROUNDS):
                taken = sum(len(poster.posted) for poster in posters)  # In RESET nothing is taken.
                qp.modify(qp_state=QPState.INIT, pkey_index=0, port_num=1, qp_access_flags=0)
                while sum(len(poster.posted) for poster in posters) == taken:
                    pass
                qp.modify(qp_state=QPState.RESET)
        qp.close()
        for poster in posters:
            poster.check()
        assert device.adapter.cqes_under_way == 0


def test_posting_while_the_device_is_closed() -> None:
    for _ in range(ROUNDS):
        device = hca.open()
        pd = device.alloc_pd()
        srq = pd.create_srq(max_wr=4096)
        kept.extend((pd, srq))
        with posters_of(srq.post_recv, 1) as ((poster,), some_posted):
            assert some_posted.wait(PATIENCE_S)
            device.__exit__(None, None, None)
        poster.check()


class Asked(hca.Cqe):
    """Knows whether it was told that nothing will come."""

    def __init__(self) -> None:
        super().__init__()
        self.is_forgotten = False

    def forgotten(self) -> None:
        self.is_forgotten = True


@pytest.mark.parametrize("ends_by", ["reset", "close"])
def test_the_queue_pair_goes_by_a_finalizer_while_it_is_polled(ends_by: str) -> None:
    """Up to Python 3.11 the garbage collector may run when an object is made."""
    asked = [Asked() for _ in range(32)]
    with hca.open() as device:
        pd, cq = device.alloc_pd(), device.create_cq(64)
        qp = pd.create_qp(QPType.RC, send_cq=cq, recv_cq=cq, max_recv_wr=32)
        qp.modify(qp_state=QPState.INIT, pkey_index=0, port_num=1, qp_access_flags=0)
        qp.post_recv([hca.Recv(wr_id=at, cqe=cqe) for at, cqe in enumerate(asked)])
        qp.modify(qp_state=QPState.ERR)

        def end(phase: str, info: dict[str, int]) -> None:
            if ends_by == "close":
                qp.close()
            elif qp.state is not QPState.RESET:
                qp.modify(qp_state=QPState.RESET)

        thresholds = gc.get_threshold()
        gc.callbacks.append(end)
        gc.set_threshold(1)
        try:
            wcs = cq.poll(len(asked))
        finally:
            gc.set_threshold(*thresholds)
            gc.callbacks.remove(end)
    completed = {wc.wr_id: wc.cqe for wc in wcs}
    for wr_id, cqe in enumerate(asked):
        assert cqe.is_forgotten is (wr_id not in completed), wr_id
        assert completed.get(wr_id, cqe) is cqe, wr_id


@pytest.mark.parametrize("ends_by", ["reset", "close"])
def test_the_queue_pair_goes_while_others_poll(ends_by: str) -> None:
    asked: list[Asked] = []
    completed: dict[int, hca.Cqe | None] = {}
    over = threading.Event()
    rounds, writes = 5000, 4
    with hca.open() as device:
        # Room for all that completes, however long nobody polls: RESET leaves completions there.
        pd, cq = device.alloc_pd(), device.create_cq(rounds * writes)
        mr = pd.reg_mr(bytearray(8))

        def take() -> None:
            while True:
                last = over.is_set()
                wcs = cq.poll()
                completed.update((wc.wr_id, wc.cqe) for wc in wcs)
                if last and not wcs:
                    break

        pollers = [threading.Thread(target=take) for _ in range(2)]
        for poller in pollers:
            poller.start()
        near, far = (pd.create_qp(QPType.RC, send_cq=cq, recv_cq=cq) for _ in range(2))
        for _ in range(rounds):
            near.connect(far.info())
            far.connect(near.info())
            for _ in range(writes):
                cqe = Asked()
                write = hca.Write(
                    mr[:], remote=mr.remote(), wr_id=len(asked), signaled=True, cqe=cqe
                )
                near.post_send(write)
                asked.append(cqe)
            if ends_by == "close":
                near.close()
                near = pd.create_qp(QPType.RC, send_cq=cq, recv_cq=cq)
            else:
                near.modify(qp_state=QPState.RESET)
            far.modify(qp_state=QPState.RESET)
        over.set()
        for poller in pollers:
            poller.join(PATIENCE_S)
    # Each is told one thing: what came, or that nothing will.
    for wr_id, cqe in enumerate(asked):
        assert cqe.is_forgotten is (wr_id not in completed), wr_id
        assert completed.get(wr_id, cqe) is cqe, wr_id
