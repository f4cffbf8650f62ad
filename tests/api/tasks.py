"""Async test bodies under asyncio, trio, and anyio on either."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import softhca as hca

Body = Callable[[], Awaitable[Any]]
RUNNERS = ["asyncio", "trio", "anyio on asyncio", "anyio on trio"]


def runner(name: str) -> Callable[[Body], Any]:
    """Returns what runs an async function; skips the test where it is not installed.

    A body has a minute, so that one that hangs is a failure and not a test run without end.
    """
    backend = name.split()[-1]
    if name == "asyncio":

        async def within(body: Body) -> Any:
            async with asyncio.timeout(60):
                return await body()

        return lambda body: asyncio.run(within(body))
    trio = pytest.importorskip("trio") if backend == "trio" else None
    if name == "trio":

        async def guarded(body: Body) -> Any:
            with trio.fail_after(60):
                return await body()

        return lambda body: trio.run(guarded, body)
    anyio = pytest.importorskip("anyio")

    async def bounded(body: Body) -> Any:
        with anyio.fail_after(60):
            return await body()

    return lambda body: anyio.run(bounded, body, backend=backend)


def outstanding(cq: hca.CQ) -> int:
    """Work requests that the queue's tasks have under way."""
    dispatcher = cq._dispatcher
    assert dispatcher is not None
    return len(dispatcher.outstanding) + len(dispatcher._takers)
