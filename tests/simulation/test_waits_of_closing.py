"""Closing and draining wait for other programs of a fabric in its time, as they do in real time."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

import softhca as hca
from softhca.testing import Fabric, Pair

MS = 1_000_000


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    with Fabric(seed=1) as made:
        yield made


def in_error(fabric: Fabric, cq: hca.CQ) -> hca.QP:
    """A queue pair whose work requests complete as soon as they are posted."""
    pd = fabric.keep(cq.device.alloc_pd())
    qp = fabric.keep(
        pd.create_qp(hca.QPType.RC, send_cq=cq, recv_cq=cq, max_send_wr=4, max_recv_wr=4)
    )
    qp.modify(qp_state=hca.QPState.INIT, pkey_index=0, port_num=1, qp_access_flags=0)
    qp.modify(qp_state=hca.QPState.ERR)
    return qp


def test_closing_a_queue_waits_for_the_program_that_acknowledges(fabric: Fabric) -> None:
    cq = fabric.keep(fabric.host().create_cq(4))
    cq.req_notify()
    qp = in_error(fabric, cq)
    qp.post_recv(hca.Recv())

    def acknowledges() -> None:
        assert cq.channel.get_event() is cq
        fabric.sleep(2e-3)
        cq.ack_events()

    def closes() -> int:
        fabric.sleep(1e-3)
        qp.close()
        cq.close()
        return fabric.now_ns

    assert fabric.run(acknowledges, closes) == [None, 2 * MS]


def test_closing_a_queue_pair_waits_for_the_program_that_has_its_event(fabric: Fabric) -> None:
    pair = Pair(fabric)
    nowhere = hca.RemoteMemory(0, 1, 8)

    def handles() -> int:
        with pair.b.device.get_async_event() as event:
            assert event.element is pair.b.qp
            fabric.sleep(1e-3)
        return fabric.now_ns

    def closes() -> int:
        pair.a.qp.post_send(hca.Write(pair.a.mr[:8], remote=nowhere))
        assert pair.a.next().status is hca.WcStatus.REM_ACCESS_ERR
        pair.b.qp.close()
        return fabric.now_ns

    acknowledged_ns, closed_ns = fabric.run(handles, closes)
    assert closed_ns == acknowledged_ns > MS


def test_a_call_at_a_later_time_may_acknowledge(fabric: Fabric) -> None:
    cq = fabric.keep(fabric.host().create_cq(4))
    cq.req_notify()
    qp = in_error(fabric, cq)
    qp.post_recv(hca.Recv())
    assert cq.channel.poll_event() is cq
    fabric.after(1e-3, cq.ack_events)
    qp.close()
    cq.close()
    assert fabric.now_ns == MS


def test_closing_gives_up_after_five_seconds_that_cost_nothing(fabric: Fabric) -> None:
    cq = fabric.keep(fabric.host().create_cq(4))
    cq.req_notify()
    qp = in_error(fabric, cq)
    qp.post_recv(hca.Recv())
    assert cq.channel.poll_event() is cq
    qp.close()
    assert fabric.now_ns == 0  # Without such events nobody waits.
    with pytest.raises(hca.VerbsError, match="1 event of it was never acknowledged") as refusal:
        cq.close()
    assert (refusal.value.errno, fabric.now_ns) == (errno.EBUSY, 5000 * MS)
    cq.ack_events()
    cq.close()


def test_draining_waits_for_the_program_that_processes_the_queue(fabric: Fabric) -> None:
    cq = fabric.host().alloc_cq(16, poll_context=hca.PollContext.DIRECT)
    fabric.keep(cq)
    qp = in_error(fabric, cq)
    called: list[tuple[str, int]] = []

    def callback(name: str, seconds: float) -> hca.Cqe:
        def done(_cq: hca.CQ, _wc: hca.WC) -> None:
            fabric.sleep(seconds)
            called.append((name, fabric.now_ns))

        return hca.Cqe(done)

    qp.post_recv([hca.Recv(cqe=callback("slow", 5e-3)), hca.Recv(cqe=callback("next", 0))])

    def processes() -> int:
        return cq.process_direct(1)

    def drains() -> int:
        fabric.sleep(1e-3)
        hca.drain_qp(qp)
        return fabric.now_ns

    assert fabric.run(processes, drains) == [1, 5 * MS]
    assert called == [("slow", 5 * MS), ("next", 5 * MS)]


def test_draining_waits_for_a_callback_that_another_program_runs(fabric: Fabric) -> None:
    cq = fabric.host().alloc_cq(16, poll_context=hca.PollContext.WORKQUEUE)
    fabric.keep(cq)
    first, second = in_error(fabric, cq), in_error(fabric, cq)
    slow = hca.Cqe(lambda _cq, _wc: fabric.sleep(5e-3))

    def drains_first() -> int:
        first.post_recv(hca.Recv(cqe=slow))
        hca.drain_qp(first)
        return fabric.now_ns

    def drains_second() -> int:
        hca.drain_qp(second)
        return fabric.now_ns

    assert fabric.run(drains_first, drains_second) == [5 * MS, 5 * MS]


def test_freeing_waits_for_a_callback_that_another_program_runs(fabric: Fabric) -> None:
    cq = fabric.host().alloc_cq(16, poll_context=hca.PollContext.WORKQUEUE)
    qp = in_error(fabric, cq)
    slow = hca.Cqe(lambda _cq, _wc: fabric.sleep(5e-3))

    def drains() -> int | None:
        qp.post_recv(hca.Recv(cqe=slow))
        try:
            hca.drain_qp(qp)
        except hca.VerbsError as error:
            return error.errno
        return None

    def frees() -> int:
        fabric.sleep(1e-3)
        qp.close()
        cq.free()
        return fabric.now_ns

    assert fabric.run(drains, frees) == [errno.ECANCELED, 5 * MS]


def test_callbacks_of_two_programs_that_free_each_others_queues_both_go_on(fabric: Fabric) -> None:
    device = fabric.host()
    # Of two vectors, so that either queue has a crew of its own.
    cqs = [
        device.alloc_cq(16, comp_vector=vector, poll_context=hca.PollContext.WORKQUEUE)
        for vector in range(2)
    ]
    waits = [in_error(fabric, cq) for cq in cqs]
    freed: list[int] = []

    def frees_the_other(this: int) -> None:
        fabric.sleep(1e-3)  # Until both callbacks run.
        waits[1 - this].close()
        cqs[1 - this].free()
        freed.append(this)

    def program(this: int) -> None:
        waits[this].post_recv(hca.Recv(cqe=hca.Cqe(lambda _cq, _wc: frees_the_other(this))))
        with pytest.raises(hca.VerbsError, match="destroyed"):
            hca.drain_qp(waits[this])

    fabric.run(lambda: program(0), lambda: program(1))
    assert sorted(freed) == [0, 1]
