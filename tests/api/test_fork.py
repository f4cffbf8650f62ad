"""A child of fork() has no device, and does the parent no harm."""

from __future__ import annotations

import asyncio
import os
import signal
import traceback
from collections.abc import Callable

import pytest

import softhca as hca
from softhca import VerbsError

from .hosts import Host, Pair

# What Python 3.12 says of every fork() in a process with threads is what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* multi-threaded:DeprecationWarning")


def in_child(run: Callable[[], None]) -> None:
    """Runs a function in a child of fork() and fails if it does."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            run()
        except BaseException:
            os.write(writing, traceback.format_exc().encode())
            os._exit(1)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        report = pipe.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, report or f"the child ended with status {status:#x}"


def refused_in_child(call: Callable[[], object]) -> None:
    try:
        call()
    except VerbsError as error:
        assert error.errno == 5, error
        assert "parent process" in str(error)
    else:
        raise AssertionError("the child used the parent's device")


def test_every_call_is_refused_in_the_child(pair: Pair) -> None:
    near, _ = pair.connected()
    device = pair.a.device

    def use_everything() -> None:
        for call in (
            device.alloc_pd,
            device.query_device,
            lambda: device.counters,
            lambda: device.create_cq(4),
            device.poll_async_event,
            device.async_event_fileno,
            pair.a.cq.poll,
            lambda: pair.a.pd.reg_mr(bytearray(4)),
            lambda: near.post_send(hca.Send(pair.a.mr[:4])),
            lambda: near.post_recv(hca.Recv(pair.a.mr[:4])),
            near.query,
            near.info,
            device.create_comp_channel,
            device.create_invalidation_channel,
            lambda: near.modify(qp_state=hca.QPState.ERR),
        ):
            refused_in_child(call)

    in_child(use_everything)
    assert near.state is hca.QPState.RTS


def test_a_child_that_awaits_is_refused_and_puts_no_task_of_the_parent_to_sleep(
    simulated: Pair,
) -> None:
    """The loop of the parent has one epoll set for both."""
    near, far = simulated.connected()
    wire = simulated.wire
    assert wire is not None

    async def receive() -> None:
        coming = asyncio.ensure_future(far.recv())
        for _ in range(5):  # Its queue is armed, and its loop has nothing to do.
            await asyncio.sleep(0)
        near.post_send(hca.Send())
        wire.settle()
        async with asyncio.timeout(20):
            (await coming).raise_for_status()

    async def body() -> None:
        await receive()
        in_child(lambda: refused_in_child(lambda: asyncio.run(simulated.b.cq.next())))
        await receive()

    asyncio.run(body())


def test_the_childs_end_leaves_the_parent_working(pair: Pair) -> None:
    near, _ = pair.connected()

    def close_everything() -> None:
        near.close()
        pair.a.device.__exit__(None, None, None)
        pair.b.device.__exit__(None, None, None)

    in_child(close_everything)
    in_child(lambda: None)
    pair.a.buffer[:4] = b"fork"
    near.post_send(hca.Write(pair.a.mr[:4], remote=pair.b.mr.remote(), signaled=True))
    assert pair.completion(pair.a).ok
    assert pair.b.buffer[:4] == b"fork"


def test_the_child_opens_a_device_of_its_own() -> None:
    with hca.open() as parent:

        def open_another() -> None:
            with hca.open() as child:
                assert child.gid != parent.gid
                host = Host(child)
                near, far = host.qp(), host.qp()
                near.connect(far.info())
                far.connect(near.info())

        in_child(open_another)
