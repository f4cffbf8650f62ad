"""asyncio and trio in virtual time."""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import softhca as hca
from softhca.testing import DeadlockError, Fabric, What

from .ends import pair


def test_awaited_work_in_virtual_time() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)

        async def main() -> str:
            coming = b.qp.recv(b.mr[:100])
            a.buffer[:5] = b"hello"
            (await a.qp.send(a.mr[:5])).raise_for_status()
            (await coming).raise_for_status()
            return bytes(b.buffer[:5]).decode()

        assert fabric.run_async(main()) == "hello"
        assert fabric.now_ns < 10_000


def test_sleeping_costs_nothing() -> None:
    with Fabric() as fabric:
        fabric.hosts(1)

        async def main() -> float:
            await asyncio.sleep(3600)
            return asyncio.get_running_loop().time()

        assert fabric.run_async(main()) == pytest.approx(3600)
        assert fabric.counters["events"] == 0


def test_time_outs_are_virtual() -> None:
    with Fabric() as fabric:
        a, _ = pair(fabric, timeout=20, retry_cnt=7)
        fabric.faults.drop()

        async def main() -> None:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(a.qp.send(a.mr[:5]), 1.5)

        fabric.run_async(main())
        assert fabric.now_ns == pytest.approx(1.5e9, rel=1e-6)


def test_tasks_that_wait_for_ever_are_named() -> None:
    with Fabric() as fabric:
        a, _ = pair(fabric)

        async def reads() -> None:
            await a.qp.recv(a.mr[:5])

        async def main() -> None:
            fabric.after(0.5, lambda: None)
            tasks = [
                asyncio.create_task(a.cq.next(), name="poller"),
                asyncio.create_task(reads(), name="reader"),
            ]
            await asyncio.sleep(0.25)
            await asyncio.gather(*tasks)

        with pytest.raises(DeadlockError, match="the loop") as stuck:
            fabric.run_async(main())
        told = str(stuck.value)
        assert "task poller waits for CQ.next(), since 250000000 ns" in told
        file = Path(__file__).name
        line = r"`await a\.qp\.recv\(a\.mr\[:5\]\)` \(" + file + r", line \d+, in reads\)"
        assert re.search(f"task reader waits for {line}, since", told), told
        assert "`await asyncio.gather(*tasks)`" in told


def test_tasks_of_a_program_that_wait_for_ever_are_named() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)

        async def reads() -> None:
            await a.qp.recv(a.mr[:5])

        def client() -> None:
            fabric.run_async(reads())

        with pytest.raises(DeadlockError) as stuck:
            fabric.run(client, b.next, names=["client", "server"])
        told = str(stuck.value).splitlines()
        assert told[1] == "  client waits for an event of the loop, since 0 ns"
        assert re.search(r"its task .* waits for `await a\.qp\.recv\(.*, in reads\)", told[2])
        assert told[3] == "  server waits for a completion event of h2, since 0 ns"


def test_trio_tasks_that_wait_for_ever_are_named() -> None:
    trio = pytest.importorskip("trio")
    with Fabric() as fabric:
        a, _ = pair(fabric)

        async def reads() -> None:
            await a.qp.recv(a.mr[:5])

        async def main() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(reads, name="reader")

        with pytest.raises(DeadlockError, match="the loop") as stuck:
            fabric.run_trio(main)
        assert re.search(
            r"task reader waits for `await a\.qp\.recv\(.*, in reads\)", str(stuck.value)
        )


def test_a_task_that_polls_and_yields() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)
        a.qp.post_send(hca.Write(a.mr[:5], remote=b.mr.remote(), signaled=True))

        async def main() -> int:
            polls = 0
            while not fabric.devices[0].adapter.poll_cq(a.cq.handle, 1, hca.WC, progress=False):
                polls += 1
                await asyncio.sleep(0)
            return polls

        assert 0 < fabric.run_async(main()) < 1000


def test_events_and_channels_in_tasks() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)

        async def main() -> hca.EventType:
            a.cq.req_notify()
            a.qp.post_send(hca.Write(a.mr[:8], remote=hca.RemoteMemory(1, 2, 8), signaled=True))
            assert await a.channel.wait_event() is a.cq
            a.cq.ack_events()
            async for event in b.device.async_events():
                with event:
                    return event.event_type
            raise AssertionError

        assert fabric.run_async(main()) is hca.EventType.QP_ACCESS_ERR


def test_loops_in_programs() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)

        async def client() -> None:
            await asyncio.sleep(0.25)
            (await a.qp.send(a.mr[:5])).raise_for_status()

        async def server() -> float:
            (await b.qp.recv(b.mr[:5])).raise_for_status()
            return asyncio.get_running_loop().time()

        _, when = fabric.run(lambda: fabric.run_async(client()), lambda: fabric.run_async(server()))
        assert 0.25 < when < 0.26


def test_trio_in_virtual_time() -> None:
    trio = pytest.importorskip("trio")
    with Fabric() as fabric:
        a, b = pair(fabric)

        async def main() -> Any:
            coming = b.qp.recv(b.mr[:100])
            await trio.sleep(1000)
            (await a.qp.send(a.mr[:5])).raise_for_status()
            with trio.move_on_after(5) as scope:
                await b.cq.next()
            assert scope.cancelled_caught
            return await coming

        assert fabric.run_trio(main).ok
        assert 1000e9 < fabric.now_ns < 1006e9


def test_trio_that_waits_for_ever() -> None:
    pytest.importorskip("trio")
    with Fabric() as fabric:
        a, _ = pair(fabric)
        with pytest.raises(DeadlockError):
            fabric.run_trio(a.cq.next)


def test_trio_hears_what_is_raised_while_time_passes() -> None:
    """Such as a failed assertion in a call that is due: trio blames itself for what clocks do."""
    trio = pytest.importorskip("trio")

    def fails() -> None:
        raise AssertionError("as it should")

    with Fabric() as fabric:
        fabric.host()
        fabric.after(1, fails)
        with pytest.raises(AssertionError, match="as it should"):
            fabric.run_trio(trio.sleep, 2)
        assert not fabric.loops
        fabric.run_trio(trio.sleep, 2)
        assert fabric.now_ns == 3_000_000_000


def test_cancelled_work_in_virtual_time() -> None:
    with Fabric() as fabric:
        a, b = pair(fabric)

        async def main() -> None:
            posted = partial(b.qp.recv, b.mr[:10])
            task = asyncio.ensure_future(posted())
            await asyncio.sleep(1)
            task.cancel()
            await asyncio.sleep(0)
            (await a.qp.send(a.mr[:5])).raise_for_status()

        fabric.run_async(main())


def _awaits_work(end: Any) -> Any:
    return end.qp.send(end.mr[:5])


def _awaits_an_event(end: Any) -> Any:
    return end.channel.wait_event()


def _awaits_an_asynchronous_event(end: Any) -> Any:
    return anext(aiter(end.device.async_events()))


def _awaits_a_completion(end: Any) -> Any:
    return end.cq.next()


@pytest.mark.parametrize("library", ["asyncio", "trio", "another fabric"])
@pytest.mark.parametrize(
    "awaits",
    [_awaits_work, _awaits_an_event, _awaits_an_asynchronous_event, _awaits_a_completion],
)
def test_a_loop_without_virtual_time_is_refused(awaits: Callable[[Any], Any], library: str) -> None:
    """Such as that of a plugin for async tests: the task would wait for ever."""
    with Fabric() as fabric, Fabric() as other:
        a, _ = pair(fabric)

        async def main() -> None:
            with pytest.raises(hca.VerbsError, match=r"fabric.run_async\(\)") as caught:
                await awaits(a)
            assert caught.value.errno == errno.EDEADLK

        if library == "asyncio":
            asyncio.run(asyncio.wait_for(main(), 60))
        elif library == "trio":
            trio = pytest.importorskip("trio")

            async def in_time() -> None:
                with trio.fail_after(60):
                    await main()

            trio.run(in_time)
        else:
            other.run_async(main())
        # Nothing was posted.
        assert not [record for record in fabric.trace if record.what is What.POST]


def test_what_is_there_already_needs_no_time() -> None:
    with Fabric() as fabric:
        _, b = pair(fabric)
        fabric.faults.port_down(b.device)

        async def main() -> hca.EventType:
            return (await anext(aiter(b.device.async_events()))).event_type

        assert asyncio.run(main()) is hca.EventType.PORT_ERR
