"""Many tasks and several loops on a queue, and other ways to wait beside them."""

from __future__ import annotations

import asyncio
import errno
import gc
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from softhca import WC, CompletionBuffer, NotifyFlags, PollContext, Recv, Send, VerbsError
from softhca.completion.awaiting import Dispatcher

from .hosts import Pair
from .tasks import Body, outstanding, runner

Run = Callable[[Body], Any]


def begun_on_a_closed_loop(work: Callable[[], Awaitable[Any]]) -> asyncio.Task[Any]:
    """A task that waits for what `work` gives, on a loop that was closed under it."""
    loop = asyncio.new_event_loop()

    async def begin() -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.ensure_future(work())  # type: ignore[assignment]
        await asyncio.sleep(0)
        return task

    task = loop.run_until_complete(begin())
    loop.close()
    return task


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
    tasks = [begun_on_a_closed_loop(lambda: near.send())]
    far.post_recv([Recv(), Recv()])

    async def body() -> None:
        (await near.send()).raise_for_status()

    asyncio.run(body())
    assert outstanding(real.a.cq) == 0
    tasks[0]._log_destroy_pending = False  # type: ignore[attr-defined]
    real.completions(real.b, 2)


def test_a_completion_passes_by_a_task_whose_loop_was_closed(real: Pair) -> None:
    near, far = real.connected(max_send_wr=8, max_recv_wr=8)
    tasks = [begun_on_a_closed_loop(lambda: real.b.cq.next())]
    far.post_recv(Recv(wr_id=7))

    async def body() -> int:
        async with asyncio.timeout(60):
            (await near.send()).raise_for_status()
            return (await real.b.cq.next()).wr_id

    assert asyncio.run(body()) == 7
    tasks[0]._log_destroy_pending = False  # type: ignore[attr-defined]


def test_a_task_whose_loop_was_closed_hands_nothing_on_twice(real: Pair) -> None:
    near, far = real.connected(max_send_wr=8, max_recv_wr=8)
    tasks = [begun_on_a_closed_loop(lambda: real.b.cq.next())]
    far.post_recv([Recv(wr_id=7), Recv(wr_id=8)])
    near.post_send([Send(), Send()])
    # Without an event loop that looks on, so that only the closed one's task waits.
    dispatcher = real.b.cq._dispatcher
    assert dispatcher is not None
    taken = 0
    while taken < 2:
        taken += dispatcher.step()
    tasks[0]._log_destroy_pending = False  # type: ignore[attr-defined]
    tasks.clear()
    gc.collect()
    wcs: list[WC] = []
    while polled := real.b.cq.poll():
        wcs += polled
    assert [wc.wr_id for wc in wcs] == [7, 8]


def test_a_completion_passes_by_a_task_whose_loop_was_stopped(real: Pair) -> None:
    near, far = real.connected(max_send_wr=8, max_recv_wr=8)
    far.post_recv(Recv(wr_id=7))
    loop = asyncio.new_event_loop()
    tasks = []

    async def begin() -> None:
        tasks.append(asyncio.ensure_future(real.b.cq.next()))
        await asyncio.sleep(0)

    loop.run_until_complete(begin())

    async def body() -> int:
        async with asyncio.timeout(60):
            taker = asyncio.ensure_future(real.b.cq.next())
            (await near.send()).raise_for_status()
            return (await taker).wr_id

    assert asyncio.run(body()) == 7
    tasks[0].cancel()
    loop.run_until_complete(asyncio.wait(tasks))
    loop.close()


@pytest.mark.parametrize("work", ["next", "recv"])
def test_a_loop_that_goes_on_after_another_wakes_its_tasks(real: Pair, work: str) -> None:
    near, far = real.connected(max_send_wr=8, max_recv_wr=8)
    near.post_recv(Recv())
    loop = asyncio.new_event_loop()

    async def begin() -> asyncio.Task[WC]:
        task: asyncio.Task[WC]
        if work == "next":
            task = asyncio.ensure_future(real.b.cq.next())
        else:
            task = asyncio.ensure_future(far.recv(wr_id=7))
        await asyncio.sleep(0)
        return task

    async def between() -> None:
        (await far.send()).raise_for_status()

    async def end(task: asyncio.Task[WC]) -> int:
        async with asyncio.timeout(20):
            return (await task).wr_id

    task = loop.run_until_complete(begin())
    asyncio.run(between())
    if work == "next":
        far.post_recv(Recv(wr_id=7))
    near.post_send(Send())
    assert loop.run_until_complete(end(task)) == 7
    loop.close()
    real.completion(real.a)


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


def test_a_poll_finds_what_waits_behind_what_is_awaited(simulated: Pair) -> None:
    near, far = simulated.connected(max_send_wr=16, max_recv_wr=16)
    wire = simulated.wire
    assert wire is not None

    async def body() -> None:
        cq = simulated.a.cq
        records = CompletionBuffer(1)
        polls: list[Callable[[], int]] = [
            lambda: wc.wr_id if (wc := cq.poll_one()) is not None else 0,
            lambda: sum(wc.wr_id for wc in cq.poll(1)),
            lambda: sum(records.wr_ids(cq.poll_into(records))),
        ]
        for poll in polls:
            awaited = [near.recv(wr_id=number) for number in (1, 2)]
            near.post_recv([Recv(wr_id=3), Recv(wr_id=4)])
            far.post_send([Send() for _ in range(4)])
            wire.settle()
            assert [poll() for _ in range(3)] == [3, 4, 0]
            assert [(await one).wr_id for one in awaited] == [1, 2]

    asyncio.run(body())


@pytest.mark.parametrize("way", ["poll", "poll_one", "poll_into"])
def test_a_task_that_begins_while_somebody_polls_has_what_it_awaits(
    simulated: Pair, way: str
) -> None:
    near, far = simulated.connected(max_send_wr=16, max_recv_wr=16)
    wire = simulated.wire
    assert wire is not None
    far.post_recv([Recv(), Recv()])

    async def body() -> None:
        cq = near.send_cq
        assert cq is not None
        records = CompletionBuffer(2)
        begun: list[Awaitable[WC]] = []

        def begin() -> None:
            """Of a poll that found nothing, before it looks again."""
            if not begun:
                begun.append(near.send(wr_id=1))
                near.post_send(Send(wr_id=2, signaled=True))
                wire.settle()

        simulated.a.device.adapter.set_idle(begin)
        if way == "poll":
            assert [wc.wr_id for wc in cq.poll()] == [2]
        elif way == "poll_one":
            wc = cq.poll_one()
            assert wc is not None
            assert wc.wr_id == 2
        else:
            assert records.wr_ids(cq.poll_into(records)) == [2]
        simulated.a.device.adapter.set_idle(None)
        async with asyncio.timeout(60):
            assert (await begun[0]).wr_id == 1

    asyncio.run(body())
    simulated.completions(simulated.b, 2)


def test_the_hint_counts_what_no_task_took(simulated: Pair) -> None:
    near, far = simulated.connected(max_send_wr=16, max_recv_wr=16)
    wire = simulated.wire
    assert wire is not None

    async def body() -> None:
        cq = simulated.a.cq
        near.post_recv([Recv(wr_id=number) for number in range(3)])
        far.post_send([Send() for _ in range(3)])
        wire.settle()
        assert (await cq.next()).wr_id == 0  # One taker; the pump polls more than one.
        arming = NotifyFlags.NEXT_COMP | NotifyFlags.REPORT_MISSED_EVENTS
        assert cq.req_notify(NotifyFlags.NEXT_COMP) == 0
        assert cq.req_notify(arming) == 1
        assert [wc.wr_id for wc in cq.poll()] == [1, 2]
        assert cq.req_notify(arming) == 0

    asyncio.run(body())


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


def test_an_older_trio_has_less_and_is_enough(real: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    trio = pytest.importorskip("trio")
    monkeypatch.delattr(trio.lowlevel, "in_trio_task", raising=False)
    near, far = real.connected(max_send_wr=8, max_recv_wr=8)
    far.post_recv(Recv())

    async def body() -> None:
        with trio.fail_after(60):
            (await near.send()).raise_for_status()

    with pytest.raises(RuntimeError, match="must be awaited in a task of asyncio or trio"):
        near.send().send(None)
    trio.run(body)
    real.completion(real.b)


def test_a_queue_that_goes_while_its_pump_polls(
    real: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread closes it: the pump finds nothing to poll before it is told why."""
    close = Dispatcher.close

    def close_late(dispatcher: Dispatcher) -> None:
        pump: Any = dispatcher._pump
        pump._run()
        close(dispatcher)

    async def body() -> None:
        cq = real.a.device.create_cq(4)
        waiting = asyncio.create_task(cq.next())
        await asyncio.sleep(0)
        monkeypatch.setattr(Dispatcher, "close", close_late)
        cq.close()
        with pytest.raises(VerbsError, match="was closed while it was awaited") as raised:
            await waiting
        assert raised.value.errno == errno.ECANCELED

    asyncio.run(body())
