"""Waiting for a descriptor in a task, under asyncio and trio, and so under anyio on either."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from softhca.completion.waiters import demand_time, running_loop, trio_here

if TYPE_CHECKING:
    import asyncio

    from softhca.verbs.world import World


async def wait_readable(fd: int, world: World | None = None) -> None:
    """Waits until a descriptor is readable.

    Waits on a copy of it: any number of tasks may wait for one descriptor, whoever else has it
    registered with the loop keeps his registration, and closing it under a task does not make the
    task wait for whatever gets its number next. What was closed wakes nobody, though: the owner
    makes it readable first.

    Nothing is taken here, so a task that is cancelled has lost nothing.

    Args:
        fd: The descriptor.
        world: Of a simulated device's: the fabric that it is in.

    Raises:
        RuntimeError: Outside a task of asyncio or trio.
        VerbsError: EDEADLK, in a loop in which no time of that fabric passes.
    """
    demand_time(world)
    trio = trio_here()
    own = os.dup(fd)
    try:
        if trio is not None:
            await trio.lowlevel.wait_readable(own)
        else:
            await _asyncio_readable(own)
    finally:
        os.close(own)


async def checkpoint() -> None:
    """Lets other tasks run, and a cancellation arrive."""
    trio = trio_here()
    if trio is not None:
        await trio.lowlevel.checkpoint()
    else:
        import asyncio

        await asyncio.sleep(0)


async def _asyncio_readable(fd: int) -> None:
    loop = running_loop()
    readable: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        loop.remove_reader(fd)
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(fd, wake)
    try:
        await readable
    finally:
        loop.remove_reader(fd)
