"""Tasks that are cancelled while they await completions: nothing is lost, nothing is kept."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import softhca as hca
from softhca import Recv, Send

from .hosts import Pair
from .tasks import Body, outstanding

Run = Callable[[Body], Any]


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
