"""Waiting for notices, in a thread and in a task."""

from __future__ import annotations

import asyncio
import threading

import pytest

from api.hosts import Host
from softhca import InvalidationChannel, VerbsError

from . import libc
from .libc import PAGE


def test_a_task_gets_events_as_they_come(host: Host, channel: InvalidationChannel) -> None:
    async def collect(at: int) -> list[int]:
        loop = asyncio.get_running_loop()
        offsets = []
        async for event in channel:
            offsets.append(event.offset // PAGE)
            if len(offsets) == 3:
                return offsets
            loop.call_soon(libc.unmap, at + 2 * len(offsets) * PAGE, PAGE)
        raise AssertionError("it ends only by an error")

    with libc.pages(6) as at:
        host.keep(host.pd.reg_mr(addr=at, length=6 * PAGE, invalidation=channel))
        libc.unmap(at, PAGE)
        assert asyncio.run(asyncio.wait_for(collect(at), 20)) == [0, 2, 4]


def test_a_cancelled_task_has_taken_nothing(host: Host, channel: InvalidationChannel) -> None:
    async def give_up() -> None:
        waiting = asyncio.ensure_future(anext(channel))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()

    with libc.pages(1) as at:
        host.keep(host.pd.reg_mr(addr=at, length=PAGE, invalidation=channel))
        asyncio.run(give_up())
        libc.unmap(at, PAGE)
        assert len(channel.read()) == 1


def test_closing_ends_a_tasks_wait(channel: InvalidationChannel) -> None:
    async def wait_for_the_end() -> None:
        asyncio.get_running_loop().call_soon(channel.close)
        with pytest.raises(VerbsError, match="is closed"):
            await anext(channel)

    asyncio.run(asyncio.wait_for(wait_for_the_end(), 20))


def test_closing_ends_a_threads_wait(channel: InvalidationChannel) -> None:
    refused: list[VerbsError] = []

    def wait() -> None:
        try:
            channel.wait(timeout=20)
        except VerbsError as error:
            refused.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    channel.close()
    thread.join()
    assert "is closed" in str(refused[0])
