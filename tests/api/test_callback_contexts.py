"""Poll contexts keep their word: every completion once, in order, in the right thread, in turn."""

from __future__ import annotations

import errno
import os
import random
import select
import threading

import pytest

import softhca as hca
from softhca.testing import open_simulated

from .callbacks import PATIENCE_S, THREADED, Note, Told, no_connection, passes, to_itself
from .hosts import Pair

# Completions per queue, by how many queues there are.
COUNTS = {1: 20000, 16: 1000, 1000: 10}


def native_threads() -> set[str]:
    return set(os.listdir("/proc/self/task"))


def test_direct_starts_no_thread_and_gets_no_event() -> None:
    with hca.open() as device:
        python, native = threading.enumerate(), native_threads()
        cq = device.alloc_cq(64, poll_context=hca.PollContext.DIRECT)
        pd = device.alloc_pd()
        near, far = to_itself(pd, cq)
        told = Told()
        far.post_recv(hca.Recv(cqe=Note(told), wr_id=1))
        near.post_send(hca.Send(signaled=True, cqe=Note(told), wr_id=2))
        while len(told.wr_ids) < 2:
            hca.process_cq_direct(cq)
        assert told.threads == {threading.get_ident()}
        # Threads of before may end: one that Python has joined is still there for a moment.
        assert set(threading.enumerate()) <= set(python)
        assert native_threads() <= native
        assert not select.select([cq.channel.fileno()], [], [], 0)[0]
        assert cq.channel.poll_event() is None


def test_a_direct_budget_is_exact(device: hca.Device) -> None:
    cq = device.alloc_cq(256, poll_context=hca.PollContext.DIRECT)
    qp = no_connection(device.alloc_pd(), cq)
    told = Told()
    for wr_id in range(100):
        qp.post_recv(hca.Recv(cqe=Note(told), wr_id=wr_id))
    assert cq.process_direct(0) == 0
    assert cq.process_direct(1) == 1
    assert cq.process_direct(16) == 16
    assert cq.process_direct(40) == 40
    assert told.wr_ids == list(range(57))
    assert cq.process_direct() == 43
    assert cq.process_direct() == 0
    assert told.wr_ids == list(range(100))
    device.__exit__(None, None, None)


@pytest.mark.parametrize("queues", COUNTS)
@pytest.mark.parametrize("context", THREADED)
def test_each_completion_once_and_in_order(context: hca.PollContext, queues: int) -> None:
    per_queue = COUNTS[queues]
    with hca.open() as device:
        pd = device.alloc_pd()
        told = [Told() for _ in range(queues)]
        cqs = [
            device.alloc_cq(
                per_queue,
                poll_context=context,
                comp_vector=index % device.num_comp_vectors,
                on_exception=lambda *_: None,
            )
            for index in range(queues)
        ]
        qps = [no_connection(pd, cq) for cq in cqs]

        def fail(cq: hca.CQ, wc: hca.WC) -> None:
            if wc.wr_id % 7 == 3:
                raise RuntimeError("a callback that raises costs nobody else anything")

        notes = [Note(one, fail) for one in told]
        for wr_id in range(per_queue):
            for qp, note in zip(qps, notes, strict=True):
                if wr_id % 2:
                    qp.post_recv(hca.Recv(cqe=note, wr_id=wr_id))
                else:
                    qp.post_send(hca.Send(cqe=note, wr_id=wr_id))
        for one in told:
            one.wait(per_queue)
        assert all(one.wr_ids == list(range(per_queue)) for one in told)
        assert not any(one.overlaps for one in told)
        assert device.adapter.cqes_under_way == 0
        threads = set().union(*(one.threads for one in told))
        assert threading.get_ident() not in threads
        if context is hca.PollContext.SOFTIRQ:
            assert len(threads) <= device.num_comp_vectors
        for qp in qps:
            qp.close()
        for cq in cqs:
            cq.free()


@pytest.mark.parametrize("context", THREADED)
def test_real_traffic_reaches_callbacks_in_order(pair: Pair, context: hca.PollContext) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    choose = random.Random(seed)
    count = 400
    sent, received = Told(), Told()
    # A work request that has completed leaves room for the next, though nobody was called back yet.
    sends = pair.a.device.alloc_cq(count, poll_context=context)
    receives = pair.b.device.alloc_cq(count, poll_context=context)
    near = pair.a.qp(send_cq=sends, max_send_wr=32, recv_cq=sends)
    far = pair.b.qp(send_cq=receives, recv_cq=receives, max_recv_wr=32)
    near.connect(far.info())
    far.connect(near.info())
    posted = iter(range(count))

    def post_receive(*_: object) -> None:
        if (wr_id := next(posted, None)) is not None:
            far.post_recv(hca.Recv(pair.b.mr[:64], cqe=again, wr_id=wr_id))

    again = Note(received, post_receive)
    for _ in range(32):
        post_receive()
    signaled = []
    for wr_id in range(count):
        ask = wr_id % 32 == 31 or wr_id == count - 1 or choose.random() < 0.5
        before = len(signaled)  # When all these are complete, there is room.
        signaled += [wr_id] * ask
        send = hca.Send(pair.a.mr[:64], cqe=Note(sent), wr_id=wr_id, signaled=ask)
        while True:
            try:
                near.post_send(send)
                break
            except hca.VerbsError as error:
                assert error.errno == errno.ENOMEM
                pair.until(lambda upto=before: len(sent.wr_ids) >= upto)
    pair.until(lambda: len(received.wr_ids) == count and len(sent.wr_ids) == len(signaled))
    assert received.wr_ids == list(range(count))
    assert sent.wr_ids == signaled
    assert not sent.overlaps
    assert not received.overlaps
    pair.until(lambda: pair.a.device.adapter.cqes_under_way == 0)
    near.close()
    far.close()
    sends.free()
    receives.free()


def run_lengths(order: list[int]) -> list[int]:
    """How many callbacks of one queue came before one of another."""
    lengths = [0]
    for before, this in zip([order[0], *order], order, strict=False):
        if this != before:
            lengths.append(0)
        lengths[-1] += 1
    return lengths


@pytest.mark.parametrize(
    ("context", "budget", "completions"),
    [
        (hca.PollContext.SOFTIRQ, 256, 256 * 8),
        (hca.PollContext.WORKQUEUE, 65536, 65536 + 256),
        (hca.PollContext.UNBOUND_WORKQUEUE, 65536, 65536 + 256),
    ],
)
def test_two_busy_queues_take_turns_of_one_budget(
    context: hca.PollContext, budget: int, completions: int
) -> None:
    with open_simulated("10.0.0.1", limits={"max_cqe": completions}) as device:
        order: list[int] = []
        pd = device.alloc_pd()
        for number in range(2):
            cq = device.alloc_cq(completions, poll_context=context)
            note = hca.Cqe(lambda cq, wc, number=number: order.append(number))
            qp = no_connection(pd, cq)
            for _ in range(completions // 256):
                qp.post_recv([hca.Recv(cqe=note)] * 256)
        ran = [0]
        while device.run_callbacks():
            ran.append(len(order))
        lengths = run_lengths(order)
        assert len(order) == 2 * completions
        assert max(lengths) == budget
        assert lengths[:2] == [budget, budget]


def test_who_is_always_busy_lets_the_other_in() -> None:
    """A queue that posts a new work request in each callback never runs dry."""
    with open_simulated("10.0.0.1") as device:
        order: list[str] = []
        pd = device.alloc_pd()
        busy_cq, other_cq = (device.alloc_cq(512) for _ in range(2))
        busy, other = no_connection(pd, busy_cq), no_connection(pd, other_cq)

        def again(*_: object) -> None:
            order.append("busy")
            busy.post_recv(hca.Recv(cqe=busy_cqe))

        busy_cqe = hca.Cqe(again)
        busy.post_recv([hca.Recv(cqe=busy_cqe)] * 20)
        other.post_recv(hca.Recv(cqe=hca.Cqe(lambda *_: order.append("other"))))
        for _ in range(10):
            device.run_callbacks()
        assert order.index("other") <= 256
        assert len(order) == 9 * 256 + 1
        busy.close()


def test_threads_keep_the_budget_too() -> None:
    """On one vector, while both queues have work, neither runs longer than a budget."""
    with hca.open() as device:
        order: list[int] = []
        pd = device.alloc_pd()
        count = 4096
        started, filled = threading.Event(), threading.Event()
        gate_cq = device.alloc_cq(4)
        gate = no_connection(pd, gate_cq)

        def hold(*_: object) -> None:
            started.set()
            passes(filled)

        gate.post_recv(hca.Recv(cqe=hca.Cqe(hold)))
        assert passes(started)
        ended = threading.Semaphore(0)

        def note(number: int, wc: hca.WC) -> None:
            order.append(number)
            if wc.wr_id == count - 1:
                ended.release()

        for number in range(2):
            cq = device.alloc_cq(count)
            qp = no_connection(pd, cq)
            cqe = hca.Cqe(lambda cq, wc, number=number: note(number, wc))
            qp.post_recv([hca.Recv(cqe=cqe, wr_id=wr_id) for wr_id in range(count)])
        filled.set()
        for _ in range(2):
            assert ended.acquire(timeout=PATIENCE_S)
        assert max(run_lengths(order)) == 256


@pytest.mark.parametrize("context", THREADED[1:])
def test_callbacks_that_block_hold_up_nobody_else(context: hca.PollContext) -> None:
    blocked = 12
    with hca.open() as device:
        pd = device.alloc_pd()
        release = threading.Event()
        arrived = threading.Semaphore(0)

        def block(*_: object) -> None:
            arrived.release()
            passes(release)

        told = Told()
        for _ in range(blocked):
            qp = no_connection(pd, device.alloc_cq(4, poll_context=context))
            qp.post_recv(hca.Recv(cqe=Note(told, block)))
        for _ in range(blocked):
            assert arrived.acquire(timeout=PATIENCE_S)  # All at the same time.
        other = Told()
        qp = no_connection(pd, device.alloc_cq(4, poll_context=context))
        qp.post_recv(hca.Recv(cqe=Note(other)))
        other.wait(1)
        assert told.wr_ids == []
        release.set()
        told.wait(blocked)
        assert len(told.threads) == blocked
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith(device.name)]


def test_a_softirq_vector_has_one_thread() -> None:
    with hca.open() as device:
        pd = device.alloc_pd()
        told = Told()
        release, arrived = threading.Event(), threading.Event()

        def block(*_: object) -> None:
            arrived.set()
            passes(release)

        first, second = (no_connection(pd, device.alloc_cq(4)) for _ in range(2))
        first.post_recv(hca.Recv(cqe=Note(told, block), wr_id=1))
        assert passes(arrived)
        second.post_recv(hca.Recv(cqe=Note(told), wr_id=2))
        assert told.wr_ids == []
        release.set()
        told.wait(2)
        assert told.wr_ids == [1, 2]
        assert len(told.threads) == 1
