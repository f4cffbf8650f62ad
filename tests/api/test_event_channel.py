"""The asynchronous event channel itself: taking, waiting, acknowledging, closing."""

from __future__ import annotations

import asyncio
import errno
import gc
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import softhca as hca
from softhca import EventType, VerbsError

from .hosts import Host, Pair


def fail(pair: Pair) -> tuple[hca.QP, hca.QP]:
    """Connects a pair and makes the responder's side raise QP_ACCESS_ERR."""
    near, far = pair.connected()
    near.post_send(hca.Write(pair.a.mr[:8], remote=hca.RemoteMemory(0, 1, 8)))
    assert not pair.completion(pair.a).ok
    return near, far


@pytest.fixture(params=["asyncio", "trio"])
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[], Awaitable[None]]], None]:
    """Runs an async function under anyio on one of its back ends, for 20 s at most."""
    anyio = pytest.importorskip("anyio")
    pytest.importorskip(request.param)

    def run_in_time(body: Callable[[], Awaitable[None]]) -> None:
        async def timed() -> None:
            with anyio.fail_after(20):
                await body()

        anyio.run(timed, backend=request.param)

    return run_in_time


def test_an_event_is_acknowledged_once(simulated: Pair) -> None:
    _, far = fail(simulated)
    event = simulated.event(simulated.b)
    assert repr(event) == f"<AsyncEvent QP_ACCESS_ERR {far!r}>"
    assert far._async_acks.outstanding == 1
    event.ack()
    assert far._async_acks.outstanding == 0
    with pytest.raises(VerbsError, match="event: was acknowledged already") as raised:
        event.ack()
    assert raised.value.errno == errno.EINVAL
    with pytest.raises(VerbsError, match="event: was acknowledged already"):
        simulated.b.device.ack_async_event(event)
    far.close()


def test_the_device_acknowledges_its_own_events_only(simulated: Pair) -> None:
    fail(simulated)
    event = simulated.event(simulated.b)
    with pytest.raises(VerbsError, match="event: is of another device"):
        simulated.a.device.ack_async_event(event)
    with pytest.raises(TypeError, match="event must be AsyncEvent, not int"):
        simulated.b.device.ack_async_event(3)  # type: ignore[arg-type]
    simulated.b.device.ack_async_event(event)


def test_a_block_acknowledges_its_event(simulated: Pair) -> None:
    _, far = fail(simulated)
    with simulated.event(simulated.b) as event:
        assert event.element is far
        with pytest.raises(VerbsError, match="qp: 1 event of it was never acknowledged"):
            far.close()
    far.close()


def test_a_block_may_be_acknowledged_early(simulated: Pair) -> None:
    fail(simulated)
    with simulated.event(simulated.b) as event:
        event.ack()


def test_an_event_that_nobody_holds_is_acknowledged(simulated: Pair) -> None:
    _, far = fail(simulated)
    event = simulated.event(simulated.b)
    del event
    gc.collect()
    assert far._async_acks.outstanding == 0
    far.close()


def test_closing_waits_for_the_thread_that_handles_the_event(pair: Pair) -> None:
    _, far = fail(pair)
    event = pair.event(pair.b)
    happened: list[str] = []

    def close() -> None:
        far.close()
        happened.append("closed")

    closer = threading.Thread(target=close)
    closer.start()
    happened.append("handled")
    event.ack()
    closer.join(20)
    assert happened == ["handled", "closed"]


def test_events_of_a_closed_object_are_gone(pair: Pair) -> None:
    _, far = fail(pair)
    far.close()
    assert pair.b.device.poll_async_event() is None


def test_no_event_is_taken_of_an_object_that_has_waited_for_them(
    simulated: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, far = fail(simulated)
    wait = hca.QP._await_acknowledgement
    taken: list[hca.AsyncEvent | None] = []

    def wait_and_take(qp: hca.QP) -> None:
        wait(qp)
        taken.append(simulated.b.device.poll_async_event())  # As another thread may.

    monkeypatch.setattr(hca.QP, "_await_acknowledgement", wait_and_take)
    far.close()
    assert taken == [None]


def test_a_waiting_thread_is_woken_by_closing() -> None:
    raised: list[BaseException] = []
    device = hca.open()
    taking = threading.Event()

    def wait() -> None:
        taking.set()
        try:
            device.get_async_event()
        except VerbsError as error:
            raised.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert taking.wait(20)
    device.close()
    waiter.join(20)
    assert not waiter.is_alive()
    assert str(raised[0]).startswith("device: is closed")


def test_the_descriptor_of_a_closed_device_is_refused_by_name() -> None:
    device = hca.open()
    device.close()
    for use in (device.async_event_fileno, device.get_async_event, device.poll_async_event):
        with pytest.raises(VerbsError, match="device: is closed"):
            use()


def test_tasks_take_events(run: Callable[..., None]) -> None:
    with hca.open() as device:
        pair = Pair(Host(device), Host(device), None)

        async def body() -> None:
            anyio = pytest.importorskip("anyio")
            taken: list[hca.AsyncEvent] = []

            async def take() -> None:
                async for event in device.async_events():
                    taken.append(event)
                    if len(taken) == 3:
                        return

            async with anyio.create_task_group() as group:
                group.start_soon(take)
                await anyio.wait_all_tasks_blocked()
                failed = [fail(pair)[1] for _ in range(3)]
            assert [event.element for event in taken] == failed

        run(body)


def test_a_cancelled_task_takes_no_event(run: Callable[..., None]) -> None:
    with hca.open() as device:
        pair = Pair(Host(device), Host(device), None)

        async def body() -> None:
            anyio = pytest.importorskip("anyio")

            async def take() -> None:
                await anext(device.async_events())

            async with anyio.create_task_group() as group:
                group.start_soon(take)
                await anyio.wait_all_tasks_blocked()
                _, far = fail(pair)  # The task is to be woken, and is cancelled before it runs.
                group.cancel_scope.cancel()
            event = await anext(device.async_events())
            assert event.element is far

        run(body)


def test_a_waiting_task_is_woken_by_closing(run: Callable[..., None]) -> None:
    device = hca.open()

    async def body() -> None:
        anyio = pytest.importorskip("anyio")
        messages: list[str] = []

        async def take() -> None:
            try:
                await anext(device.async_events())
            except VerbsError as error:
                messages.append(str(error))

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(take)
            await anyio.wait_all_tasks_blocked()
            device.close()
        assert len(messages) == 3
        assert all(message.startswith("device: is closed") for message in messages)

    run(body)


def test_plain_asyncio_needs_nothing_installed() -> None:
    with hca.open() as device:
        pair = Pair(Host(device), Host(device), None)

        async def body() -> Any:
            waiter = asyncio.ensure_future(anext(device.async_events()))
            await asyncio.sleep(0)
            fail(pair)
            return await asyncio.wait_for(waiter, 20)

        assert asyncio.run(body()).event_type is EventType.QP_ACCESS_ERR


def test_a_simulated_device_is_not_awaited(device: hca.Device) -> None:
    async def body() -> None:
        await anext(device.async_events())

    with pytest.raises(VerbsError, match="device: is simulated: poll for events"):
        asyncio.run(body())
