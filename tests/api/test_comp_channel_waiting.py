"""Waiting at completion channels: threads, tasks, descriptors, loops, and who may not: a child."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import softhca as hca
from softhca import VerbsError
from softhca.testing import open_simulated

from .hosts import Pair
from .receivers import Receiver, events, readable
from .tasks import Body

Run = Callable[[Body], Any]


def test_a_thread_waits(real: Pair) -> None:
    channel = real.a.keep(real.a.device.create_comp_channel())
    receiver = Receiver(real, channel)
    for _ in range(20):
        receiver.cq.req_notify()
        sender = threading.Thread(target=receiver.receive)
        sender.start()
        assert channel.get_event() is receiver.cq
        receiver.cq.ack_events()
        sender.join()
    assert len(receiver.cq.poll(64)) == 20


def test_a_wait_can_end_in_time(real: Pair) -> None:
    channel = real.a.keep(real.a.device.create_comp_channel())
    for timeout in (0, 0.01, -5):
        with pytest.raises(TimeoutError):
            channel.get_event(timeout)
    with pytest.raises(VerbsError, match="timeout"):
        channel.get_event(float("nan"))


class AlarmError(Exception):
    """Raised by a handler."""


def test_a_signal_ends_a_wait(real: Pair) -> None:
    channel = real.a.keep(real.a.device.create_comp_channel())

    def handle(number: int, frame: FrameType | None) -> None:
        raise AlarmError

    before = signal.signal(signal.SIGALRM, handle)
    try:
        for _ in range(5):
            with pytest.raises(AlarmError):
                signal.setitimer(signal.ITIMER_REAL, 0.005)
                channel.get_event()
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_signal_whose_handler_returns_ends_no_wait(real: Pair) -> None:
    channel = real.a.keep(real.a.device.create_comp_channel())
    receiver = Receiver(real, channel)
    receiver.cq.req_notify()
    handled = []

    def handle(number: int, frame: FrameType | None) -> None:
        handled.append(number)
        if len(handled) < 3:
            signal.setitimer(signal.ITIMER_REAL, 0.005)
        else:
            receiver.receive()

    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.005)
        assert channel.get_event() is receiver.cq
    finally:
        signal.signal(signal.SIGALRM, before)
    receiver.cq.ack_events()
    assert len(handled) == 3


def test_nobody_waits_for_a_simulation(receiver: Receiver, channel: hca.CompChannel) -> None:
    with pytest.raises(VerbsError, match="is simulated") as raised:
        channel.get_event()
    assert raised.value.errno == errno.EOPNOTSUPP
    receiver.cq.req_notify()
    receiver.receive()
    assert channel.get_event() is receiver.cq  # It need not wait.
    receiver.cq.ack_events()


def test_a_channel_closed_under_a_thread_wakes_it(real: Pair) -> None:
    for _ in range(20):
        channel = real.a.device.create_comp_channel()
        errnos: list[int | None] = []

        def wait(channel: hca.CompChannel = channel, errnos: list[int | None] = errnos) -> None:
            try:
                channel.get_event()
            except VerbsError as error:
                errnos.append(error.errno)

        waiters = [threading.Thread(target=wait) for _ in range(3)]
        for waiter in waiters:
            waiter.start()
        channel.close()
        for waiter in waiters:
            waiter.join(60)
        assert len(errnos) == 3
        assert set(errnos) <= {errno.ECANCELED, errno.EINVAL}  # The latter if it came too late.


def test_a_device_closed_under_a_thread_wakes_it() -> None:
    with hca.open() as device:
        channel = device.create_comp_channel()
        errnos: list[int | None] = []

        def wait() -> None:
            try:
                channel.get_event()
            except VerbsError as error:
                errnos.append(error.errno)

        waiter = threading.Thread(target=wait)
        waiter.start()
    waiter.join(60)
    assert errnos in ([errno.ECANCELED], [errno.EINVAL])


def test_a_channel_closed_under_a_task_wakes_it(real: Pair, run_anyio: Run) -> None:
    anyio = pytest.importorskip("anyio")

    async def body() -> None:
        channel = real.a.device.create_comp_channel()

        async def wait() -> None:
            with pytest.raises(VerbsError, match="closed while it was waited for") as raised:
                await channel.wait_event()
            assert raised.value.errno == errno.ECANCELED

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            channel.close()

    run_anyio(body)


def test_a_task_waits_and_loses_nothing_when_cancelled(
    receiver: Receiver, channel: hca.CompChannel, run_anyio: Run
) -> None:
    anyio = pytest.importorskip("anyio")

    async def body() -> None:
        receiver.cq.req_notify()
        async with anyio.create_task_group() as group:
            group.start_soon(channel.wait_event)
            await anyio.wait_all_tasks_blocked()
            receiver.receive()
            group.cancel_scope.cancel()
        assert await channel.wait_event() is receiver.cq
        receiver.cq.ack_events()

    run_anyio(body)


@pytest.mark.parametrize("how", ["select", "poll", "epoll"])
def test_the_descriptor_is_a_descriptor(
    receiver: Receiver, channel: hca.CompChannel, how: str
) -> None:
    def is_ready() -> bool:
        if how == "select":
            return readable(channel.fileno())
        if how == "poll":
            poller = select.poll()
            poller.register(channel, select.POLLIN)
            return bool(poller.poll(0))
        with select.epoll() as epoll:
            epoll.register(channel, select.EPOLLIN)
            return bool(epoll.poll(0))

    assert not is_ready()
    receiver.cq.req_notify()
    receiver.receive()
    assert is_ready()
    assert is_ready()  # Level-triggered: until the event is taken.
    assert events(channel) == [receiver.cq]
    assert not is_ready()


def test_an_edge_for_every_first_event(receiver: Receiver, channel: hca.CompChannel) -> None:
    with select.epoll() as epoll:
        epoll.register(channel, select.EPOLLIN | select.EPOLLET)
        for _ in range(3):
            assert epoll.poll(0) == []
            receiver.cq.req_notify()
            receiver.receive()
            assert len(epoll.poll(0)) == 1
            assert events(channel) == [receiver.cq]


def test_a_loop_reads_the_descriptor(real: Pair) -> None:
    channel = real.a.keep(real.a.device.create_comp_channel())
    receiver = Receiver(real, channel)

    async def body() -> None:
        loop = asyncio.get_running_loop()
        told: asyncio.Queue[hca.CQ] = asyncio.Queue()

        def on_event() -> None:
            for cq in events(channel):
                told.put_nowait(cq)

        loop.add_reader(channel.fileno(), on_event)
        for _ in range(10):
            receiver.cq.req_notify()
            await loop.run_in_executor(None, receiver.receive)
            assert await asyncio.wait_for(told.get(), 60) is receiver.cq
        loop.remove_reader(channel.fileno())

    asyncio.run(body())


# --- fork


def test_a_child_takes_nothing_from_its_parent(
    receiver: Receiver, channel: hca.CompChannel
) -> None:
    """The descriptor is one for both: a child that reads it would put its parent to sleep."""
    receiver.cq.req_notify()
    receiver.receive()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            refused = []
            for call in (channel.poll_event, channel.get_event, channel.fileno):
                try:
                    call()
                except VerbsError as error:
                    refused.append(error.errno)
            status = 0 if refused == [errno.EIO] * 3 else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert readable(channel.fileno())
    assert events(channel) == [receiver.cq]


def test_leaving_a_device_closes_its_channels() -> None:
    with open_simulated("10.0.0.7") as device:
        channel = device.create_comp_channel()
        cq = device.create_cq(4, channel=channel)
        other = device.create_cq(4)
        own = other.channel
    assert channel.closed
    assert cq.closed
    assert other.closed
    assert own.closed
