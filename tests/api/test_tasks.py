"""Awaited work requests and completions in tasks of asyncio and trio, and of anyio on both."""

from __future__ import annotations

import asyncio
import errno
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import softhca as hca
from softhca import Cqe, NotifyFlags, PollContext, QPType, Recv, Send, VerbsError, WcStatus

from .hosts import Host, Pair
from .tasks import Body, runner

Run = Callable[[Body], Any]
OPCODES = hca.WcOpcode


@pytest.fixture
def real() -> Iterator[Pair]:
    """Two hosts on loopback addresses."""
    with hca.open() as a, hca.open() as b:
        yield Pair(Host(a), Host(b), None)


def outstanding(cq: hca.CQ) -> int:
    """Work requests that the queue's tasks have under way."""
    dispatcher = cq._dispatcher
    assert dispatcher is not None
    return len(dispatcher.outstanding) + len(dispatcher._takers)


# --- every awaitable


def test_every_awaitable(real: Pair, run: Run) -> None:
    near, far = real.connected(max_send_wr=16, max_recv_wr=16)
    mine, theirs = real.a.mr, real.b.mr
    remote = theirs.remote()
    lent = real.b.pd.reg_mr(bytearray(8), hca.Access.LOCAL_WRITE | hca.Access.MW_BIND)
    window = real.b.keep(real.b.pd.alloc_mw(hca.MwType.TYPE_2))
    real.b.keep(lent)

    async def body() -> None:
        real.a.buffer[:5] = b"hello"
        far.post_recv([Recv(theirs[i * 64 : i * 64 + 64]) for i in range(4)])
        far.post_send(
            hca.BindMw(window, lent[0:8], rkey=window.rkey, access=hca.Access.REMOTE_READ)
        )
        wcs = [
            await near.send(mine[0:5]),
            await near.send_imm(mine[0:5], imm=7),
            await near.send_inv(mine[0:2], rkey=window.rkey),
            await near.write(mine[0:5], remote[1024:1029]),
            await near.write_imm(mine[0:5], remote=remote[2048:2053], imm=8),
            await near.read(mine[64:69], remote[1024:1029]),
            await near.cmp_swap(mine[128:136], remote[4096:4104], compare=0, swap=9),
            await near.fetch_add(mine[128:136], remote[4096:4104], add=3),
        ]
        for wc in wcs:
            wc.raise_for_status()
        assert [wc.opcode for wc in wcs] == [
            *(OPCODES.SEND, OPCODES.SEND, OPCODES.SEND, OPCODES.RDMA_WRITE, OPCODES.RDMA_WRITE),
            *(OPCODES.RDMA_READ, OPCODES.COMP_SWAP, OPCODES.FETCH_ADD),
        ]
        assert bytes(real.a.buffer[64:69]) == b"hello"
        assert real.b.buffer[4096] == 12
        arrived = [await real.b.cq.next() for _ in range(4)]
        assert [wc.byte_len for wc in arrived][:3] == [5, 5, 2]

    run(body)


def test_a_receive_is_awaited(real: Pair, run: Run) -> None:
    near, far = real.connected()

    async def body() -> None:
        real.b.buffer[:4] = b"ping"
        far.post_send(Send(real.b.mr[0:4], signaled=True))
        wc = await near.recv(real.a.mr[0:64], wr_id=5)
        assert (wc.ok, wc.wr_id, wc.byte_len) == (True, 5, 4)
        assert bytes(real.a.buffer[:4]) == b"ping"
        real.completion(real.b)

    run(body)


def test_a_queue_is_iterated(real: Pair, run: Run) -> None:
    near, far = real.connected(max_send_wr=64, max_recv_wr=64)

    async def body() -> None:
        far.post_recv([Recv(wr_id=number) for number in range(40)])
        near.post_send([Send(signaled=True) for _ in range(40)])
        seen: list[int] = []
        async for wc in real.b.cq:
            seen.append(wc.wr_id)
            if len(seen) == 40:
                break
        assert seen == list(range(40))

    run(body)
    real.completions(real.a, 40)


# --- what goes wrong


def test_an_error_is_returned_not_raised(real: Pair, run: Run) -> None:
    near, _ = real.connected()
    nowhere = hca.RemoteMemory(real.b.mr.addr, 0xBAD, 8)

    async def body() -> None:
        wc = await near.write(real.a.mr[0:8], nowhere)
        assert wc.status is WcStatus.REM_ACCESS_ERR
        with pytest.raises(VerbsError):
            wc.raise_for_status()
        assert (await near.send()).status is WcStatus.WR_FLUSH_ERR
        assert outstanding(real.a.cq) == 0

    run(body)


def test_what_is_refused_leaves_no_trace(real: Pair, run: Run) -> None:
    near, _ = real.connected(max_send_wr=1, max_recv_wr=1)

    async def body() -> None:
        with pytest.raises(VerbsError) as raised:
            await near.send(*[real.a.mr[0:1]] * 30)
        assert raised.value.errno == errno.EINVAL
        with pytest.raises(TypeError, match="signaled is not for awaited"):
            await near.send(signaled=False)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="cqe is not for awaited"):
            await near.send(cqe=Cqe(print))
        with pytest.raises(TypeError, match="remote must be RemoteMemory"):
            await near.write(real.a.mr[0:1])
        with pytest.raises(VerbsError, match="inline"):
            await near.send(bytes(100_000), inline=True)
        assert outstanding(real.a.cq) == 0
        # The queue is not awaited: it can be armed by hand.
        assert real.a.cq.req_notify() == 0

    run(body)


def test_no_task_no_wait(real: Pair) -> None:
    coroutine = real.a.cq.next()
    with pytest.raises(RuntimeError, match="in a task of asyncio or trio"):
        coroutine.send(None)
    qp = real.a.qp(QPType.XRC_SEND)
    with pytest.raises(VerbsError, match="has no receive queue"):
        qp.recv().send(None)


def test_a_queue_pair_that_is_reset_or_destroyed_wakes_its_tasks(
    simulated: Pair, run_anyio: Run
) -> None:
    anyio = pytest.importorskip("anyio")

    async def body() -> None:
        for way in ("reset", "destroy"):
            near, _ = simulated.connected(max_recv_wr=8)
            errnos: list[int | None] = []

            async def wait(qp: hca.QP = near, errnos: list[int | None] = errnos) -> None:
                with pytest.raises(VerbsError, match="reset or destroyed") as raised:
                    await qp.recv()
                errnos.append(raised.value.errno)

            with anyio.fail_after(60):
                async with anyio.create_task_group() as group:
                    for _ in range(3):
                        group.start_soon(wait)
                    await anyio.wait_all_tasks_blocked()
                    assert outstanding(simulated.a.cq) == 3
                    if way == "reset":
                        near.modify(qp_state=hca.QPState.RESET)
                    else:
                        near.close()
            assert errnos == [errno.ECANCELED] * 3
            assert outstanding(simulated.a.cq) == 0

    run_anyio(body)


def test_a_queue_that_is_closed_ends_its_iteration(real: Pair, run_anyio: Run) -> None:
    anyio = pytest.importorskip("anyio")

    async def body() -> None:
        cq = real.a.device.create_cq(16)

        async def iterate() -> None:
            with pytest.raises(VerbsError, match="closed while it was awaited") as raised:
                async for _ in cq:
                    raise AssertionError("nothing was posted")
            assert raised.value.errno == errno.ECANCELED

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(iterate)
                await anyio.wait_all_tasks_blocked()
                cq.close()
        with pytest.raises(VerbsError, match="is closed"):
            await cq.next()

    run_anyio(body)


def test_a_device_that_goes_away_under_tasks_wakes_them(run: Run) -> None:
    async def body() -> None:
        with hca.open() as device:
            cq = device.create_cq(16)
            device.adapter.close()
            with pytest.raises(VerbsError, match="is closed") as raised:
                await cq.next()
            assert raised.value.errno == errno.ENODEV

    run(body)


# --- cancellation


def test_a_cancelled_send_keeps_its_buffer_until_it_completes(real: Pair, run_anyio: Run) -> None:
    anyio = pytest.importorskip("anyio")
    near, far = real.connected(max_send_wr=8, max_recv_wr=8)

    async def body() -> None:
        class Buffer(bytearray):
            """Can be referred to weakly."""

        mr = real.a.pd.reg_mr(Buffer(b"still here"))
        buffer = weakref.ref(mr.obj)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:

                async def send(sge: hca.Sge) -> None:
                    await near.send(sge)

                group.start_soon(send, mr[:])
                await anyio.sleep(0)
                await anyio.wait_all_tasks_blocked()
                group.cancel_scope.cancel()
            del mr
            gc.collect()
            assert buffer() is not None
            assert outstanding(real.a.cq) == 1  # It still happens.
            far.post_recv([Recv(real.b.mr[0:64]), Recv()])
            with pytest.warns(ResourceWarning, match="unclosed <MR"):
                # Its completion is consumed before that of the next one.
                (await near.send()).raise_for_status()
                gc.collect()
            assert bytes(real.b.buffer[:10]) == b"still here"
            assert buffer() is None
        assert outstanding(real.a.cq) == 0
        assert real.a.cq.poll() == []
        real.completions(real.b, 2)

    run_anyio(body)


def test_a_cancelled_receive_takes_its_message_unseen(real: Pair, run_anyio: Run) -> None:
    anyio = pytest.importorskip("anyio")
    near, far = real.connected(max_send_wr=8, max_recv_wr=8)

    async def body() -> None:
        with anyio.fail_after(60):
            with anyio.move_on_after(0.01) as scope:
                await near.recv(real.a.mr[0:8])
            assert scope.cancelled_caught
            far.post_send([Send(real.b.mr[0:8]), Send(signaled=True)])
            wc = await near.recv(wr_id=2)
            assert (wc.wr_id, wc.byte_len) == (2, 0)
            real.completion(real.b)
        assert outstanding(real.a.cq) == 0

    run_anyio(body)


@pytest.mark.parametrize("order", ["delivered, then cancelled", "cancelled, then delivered"])
@pytest.mark.parametrize("heir", [False, True])
def test_next_cancelled_at_the_moment_of_delivery_loses_nothing(
    simulated: Pair, order: str, heir: bool, run_anyio: Run
) -> None:
    anyio = pytest.importorskip("anyio")
    near, far = simulated.connected(max_send_wr=64, max_recv_wr=64)
    wire = simulated.wire
    assert wire is not None

    async def body() -> None:
        cq = simulated.a.cq
        taken: list[hca.WC] = []

        async def take() -> None:
            taken.append(await cq.next())

        def deliver() -> None:
            near.post_recv(Recv())
            far.post_send(Send())
            wire.settle()
            cq._dispatcher.step()  # type: ignore[union-attr]

        with anyio.fail_after(60):
            async with anyio.create_task_group() as heirs, anyio.create_task_group() as doomed:
                doomed.start_soon(take)
                await anyio.wait_all_tasks_blocked()
                if heir:
                    heirs.start_soon(take)
                    await anyio.wait_all_tasks_blocked()
                if order.startswith("cancelled"):
                    doomed.cancel_scope.cancel()
                    deliver()
                else:
                    deliver()
                    doomed.cancel_scope.cancel()
                if heir and len(taken) == 2:
                    raise AssertionError("one completion, taken twice")
                with anyio.CancelScope(shield=True):
                    if heir:
                        await anyio.wait_all_tasks_blocked()
                        if not taken or outstanding(cq):
                            deliver()  # The doomed one had it after all: the heir waits.
            if not taken:
                taken.append(await cq.next())
        assert outstanding(cq) == 0
        assert cq.poll() == []
        assert len(taken) in ((1, 2) if heir else (1,))

    run_anyio(body)


def test_the_task_of_a_delivered_completion_is_cancelled(simulated: Pair) -> None:
    """Asyncio's own cancellation reaches a task whose future has a result already."""
    near, far = simulated.connected()
    wire = simulated.wire
    assert wire is not None

    async def body() -> None:
        cq = simulated.a.cq
        first, second = (asyncio.ensure_future(cq.next()) for _ in range(2))
        await asyncio.sleep(0)
        near.post_recv(Recv(wr_id=77))
        far.post_send(Send())
        wire.settle()
        assert cq._dispatcher is not None
        assert cq._dispatcher.step() == 1
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert (await asyncio.wait_for(second, 60)).wr_id == 77

    asyncio.run(body())


def test_a_cancelled_task_stays_cancelled_though_its_queue_is_closed(simulated: Pair) -> None:
    async def body() -> None:
        cq = simulated.a.device.create_cq(4)
        task = asyncio.ensure_future(cq.next())
        await asyncio.sleep(0)
        cq.close()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(body())


# --- many tasks, many loops, other ways


def test_thousands_of_awaiters_cost_one_event(
    simulated: Pair, monkeypatch: Any, run_anyio: Run
) -> None:
    from softhca.completion import awaiting

    anyio = pytest.importorskip("anyio")
    wire = simulated.wire
    assert wire is not None
    many = 5000
    cq = simulated.a.device.create_cq(2 * many)
    near = simulated.a.qp(send_cq=cq, recv_cq=cq, max_recv_wr=many)
    far = simulated.b.qp(max_send_wr=many)
    near.connect(far.info())
    far.connect(near.info())
    counted: list[str] = []
    arm, clear = awaiting.Dispatcher.arm, awaiting.Dispatcher.clear

    def counted_arm(self: Any) -> bool:
        counted.append("armed")
        return arm(self)

    def counted_clear(self: Any) -> None:
        counted.append("event")
        clear(self)

    monkeypatch.setattr(awaiting.Dispatcher, "arm", counted_arm)
    monkeypatch.setattr(awaiting.Dispatcher, "clear", counted_clear)

    async def body() -> None:
        counted.clear()
        done: list[int] = []

        async def receive(number: int) -> None:
            done.append((await near.recv(wr_id=number)).wr_id)

        with anyio.fail_after(120):
            async with anyio.create_task_group() as group:
                for number in range(many):
                    group.start_soon(receive, number)
                await anyio.wait_all_tasks_blocked()
                while "armed" not in counted:
                    await anyio.sleep(0.001)
                far.post_send([Send(signaled=i == many - 1) for i in range(many)])
                wire.settle()
        assert sorted(done) == list(range(many))
        assert counted == ["armed", "event"]

    run_anyio(body)
    simulated.completion(simulated.b)


def test_loops_one_after_another_share_a_queue(real: Pair) -> None:
    near, far = real.connected(max_send_wr=8, max_recv_wr=8)

    async def body() -> None:
        far.post_recv(Recv())
        (await near.send()).raise_for_status()

    async def leave_one_behind() -> None:
        task = asyncio.ensure_future(near.send())
        await asyncio.sleep(0)
        task.cancel()

    for name in ("asyncio", "trio", "asyncio", "anyio on trio", "anyio on asyncio"):
        runner(name)(body)
    asyncio.run(leave_one_behind())
    far.post_recv(Recv())
    for name in ("trio", "asyncio"):
        runner(name)(body)
    assert outstanding(real.a.cq) == 0
    real.completions(real.b, 8)


def test_a_loop_that_was_closed_under_a_task_is_no_obstacle(real: Pair) -> None:
    near, far = real.connected(max_send_wr=8, max_recv_wr=8)
    loop = asyncio.new_event_loop()
    tasks = []

    async def begin() -> None:
        tasks.append(asyncio.ensure_future(near.send()))
        await asyncio.sleep(0)

    loop.run_until_complete(begin())
    loop.close()
    far.post_recv([Recv(), Recv()])

    async def body() -> None:
        (await near.send()).raise_for_status()

    asyncio.run(body())
    assert outstanding(real.a.cq) == 0
    tasks[0]._log_destroy_pending = False  # type: ignore[attr-defined]
    real.completions(real.b, 2)


def test_two_loops_at_once_are_refused_by_name(real: Pair) -> None:
    near, far = real.connected(max_send_wr=8, max_recv_wr=8)
    waiting = threading.Event()

    async def first() -> None:
        task = asyncio.ensure_future(near.recv())
        await asyncio.sleep(0)
        waiting.set()
        (await task).raise_for_status()

    thread = threading.Thread(target=lambda: asyncio.run(first()))
    thread.start()
    assert waiting.wait(60)

    async def second() -> None:
        with pytest.raises(VerbsError, match="another event loop") as raised:
            await near.send()
        assert raised.value.errno == errno.EBUSY

    asyncio.run(second())
    far.post_send(Send(signaled=True))
    real.completion(real.b)
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.parametrize("poll_context", [PollContext.SOFTIRQ, PollContext.WORKQUEUE])
def test_work_of_a_callback_queue_is_awaited(
    real: Pair, run: Run, poll_context: PollContext
) -> None:
    with real.a.device.alloc_cq(64, poll_context=poll_context) as cq:
        near = real.a.qp(send_cq=cq, recv_cq=cq)
        far = real.b.qp()
        near.connect(far.info())
        far.connect(near.info())

        async def body() -> None:
            for _ in range(20):
                far.post_recv(Recv())
                (await near.send()).raise_for_status()
            with pytest.raises(VerbsError, match="gives its completions to callbacks"):
                await cq.next()

        run(body)
        near.close()
    real.completions(real.b, 20)


def test_polling_beside_tasks(simulated: Pair, run_anyio: Run) -> None:
    """Whoever polls feeds the tasks; each completion goes to one of them."""
    anyio = pytest.importorskip("anyio")
    near, far = simulated.connected(max_send_wr=16, max_recv_wr=16)
    wire = simulated.wire
    assert wire is not None

    async def body() -> None:
        cq = simulated.a.cq
        awaited: list[int] = []

        async def receive() -> None:
            awaited.append((await near.recv(wr_id=1)).wr_id)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(receive)
                await anyio.wait_all_tasks_blocked()
                near.post_recv(Recv(wr_id=2))
                far.post_send([Send(), Send(signaled=True)])
                wire.settle()
                assert [wc.wr_id for wc in cq.poll()] == [2]
        assert awaited == [1]
        assert cq.poll() == []
        simulated.completion(simulated.b)

    run_anyio(body)


def test_unclaimed_completions_keep_their_order(simulated: Pair) -> None:
    near, far = simulated.connected(max_send_wr=200, max_recv_wr=200)
    wire = simulated.wire
    assert wire is not None

    async def body() -> None:
        cq = simulated.a.cq
        near.post_recv([Recv(wr_id=number) for number in range(150)])
        far.post_send([Send() for _ in range(150)])
        wire.settle()
        seen = [(await cq.next()).wr_id]  # One taker; the pump polls more than one.
        seen += [wc.wr_id for wc in cq.poll(40)]
        seen += [(await cq.next()).wr_id for _ in range(50)]
        seen += [wc.wr_id for wc in cq.poll(1000)]
        assert seen == list(range(150))

    asyncio.run(body())


def test_arming_by_hand_waits_for_the_tasks_to_be_gone(simulated: Pair, run_anyio: Run) -> None:
    anyio = pytest.importorskip("anyio")

    async def body() -> None:
        cq = simulated.a.cq
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(cq.next)
                await anyio.wait_all_tasks_blocked()
                with pytest.raises(VerbsError, match="awaited by tasks") as raised:
                    cq.req_notify(NotifyFlags.NEXT_COMP)
                assert raised.value.errno == errno.EBUSY
                group.cancel_scope.cancel()
        assert cq.req_notify(NotifyFlags.NEXT_COMP) == 0

    run_anyio(body)
