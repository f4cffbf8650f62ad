"""Waiting for a descriptor in tasks of asyncio and trio."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from softhca.verbs.waiting import checkpoint, wait_readable

Run = Callable[[Callable[[], Awaitable[None]]], None]


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe; its ends are closed afterwards."""
    ends = os.pipe()
    yield ends
    for fd in ends:
        os.close(fd)


def test_what_is_readable_is_not_waited_for(run: Run, pipe: tuple[int, int]) -> None:
    async def body() -> None:
        os.write(pipe[1], b"x")
        await wait_readable(pipe[0])
        await checkpoint()
        await wait_readable(pipe[0])  # Nothing was taken.

    run(body)


def test_many_tasks_of_anyio_wait_for_one_descriptor(pipe: tuple[int, int]) -> None:
    anyio = pytest.importorskip("anyio")
    pytest.importorskip("trio")

    async def body() -> None:
        woken: list[int] = []

        async def wait(number: int) -> None:
            await wait_readable(pipe[0])
            woken.append(number)

        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                for number in range(10):
                    group.start_soon(wait, number)
                await anyio.wait_all_tasks_blocked()
                assert woken == []
                os.write(pipe[1], b"x")
        assert sorted(woken) == list(range(10))

    for backend in ("asyncio", "trio"):
        anyio.run(body, backend=backend)
        os.read(pipe[0], 1)


def test_a_cancelled_wait_leaves_nothing_behind(pipe: tuple[int, int]) -> None:
    async def body() -> None:
        open_before = set(os.listdir("/proc/self/fd"))
        waiter = asyncio.ensure_future(wait_readable(pipe[0]))
        await asyncio.sleep(0)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        # What others have left may be collected meanwhile.
        assert set(os.listdir("/proc/self/fd")) <= open_before
        os.write(pipe[1], b"x")
        await wait_readable(pipe[0])

    asyncio.run(body())


def test_a_reader_of_the_user_keeps_its_registration(pipe: tuple[int, int]) -> None:
    async def body() -> None:
        loop = asyncio.get_running_loop()
        called = loop.create_future()

        def on_readable() -> None:
            loop.remove_reader(pipe[0])
            called.set_result(True)

        loop.add_reader(pipe[0], on_readable)
        waiter = asyncio.ensure_future(wait_readable(pipe[0]))
        await asyncio.sleep(0)
        os.write(pipe[1], b"x")
        await asyncio.wait_for(waiter, 20)
        assert await asyncio.wait_for(called, 20)

    asyncio.run(body())


def test_the_number_of_a_closed_descriptor_wakes_nobody(pipe: tuple[int, int]) -> None:
    async def body() -> None:
        reader, writer = os.pipe()
        waiter = asyncio.ensure_future(wait_readable(reader))
        await asyncio.sleep(0)
        os.write(pipe[1], b"x")
        os.dup2(pipe[0], reader)  # Another file under the same number, readable.
        try:
            for _ in range(10):
                await asyncio.sleep(0)
            assert not waiter.done()
            os.write(writer, b"x")
            await asyncio.wait_for(waiter, 20)
        finally:
            os.close(reader)
            os.close(writer)

    asyncio.run(body())


def test_outside_of_a_task_it_says_so(pipe: tuple[int, int]) -> None:
    waiting: Any = wait_readable(pipe[0])
    with pytest.raises(RuntimeError, match="in a task of asyncio or trio"):
        waiting.send(None)


def test_trio_as_a_guest_of_asyncio_is_trio(pipe: tuple[int, int]) -> None:
    trio = pytest.importorskip("trio")

    async def guest() -> str:
        with trio.fail_after(20):
            os.write(pipe[1], b"x")
            await wait_readable(pipe[0])
            await checkpoint()
        return "done"

    async def host() -> Any:
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        trio.lowlevel.start_guest_run(
            guest,
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            done_callback=ended.set_result,
            host_uses_signal_set_wakeup_fd=True,
        )
        return await asyncio.wait_for(ended, 20)

    assert asyncio.run(host()).unwrap() == "done"
