"""Awaited work requests and completions in tasks of asyncio and trio, and of anyio on both."""

from __future__ import annotations

import errno
import gc
from collections.abc import Callable
from typing import Any

import pytest

import softhca as hca
from softhca import Cqe, QPType, Recv, Send, VerbsError, WcStatus

from .hosts import Pair
from .tasks import Body, outstanding

Run = Callable[[Body], Any]
OPCODES = hca.WcOpcode

# --- every awaitable


def test_every_awaitable(real: Pair, run: Run) -> None:
    near, far = real.connected(max_send_wr=16, max_recv_wr=16)
    mine, theirs = real.a.mr, real.b.mr
    remote = theirs.remote()
    lent = real.b.pd.reg_mr(bytearray(8), hca.Access.LOCAL_WRITE | hca.Access.MW_BIND)
    window = real.b.keep(real.b.pd.alloc_mw(hca.MwType.TYPE_2))
    real.b.keep(lent)

    async def body() -> None:
        real.a.buffer[:5] = b"hello"
        far.post_recv([Recv(theirs[i * 64 : i * 64 + 64]) for i in range(4)])
        far.post_send(
            hca.BindMw(window, lent[0:8], rkey=window.rkey, access=hca.Access.REMOTE_READ)
        )
        wcs = [
            await near.send(mine[0:5]),
            await near.send_imm(mine[0:5], imm=7),
            await near.send_inv(mine[0:2], rkey=window.rkey),
            await near.write(mine[0:5], remote[1024:1029]),
            await near.write_imm(mine[0:5], remote=remote[2048:2053], imm=8),
            await near.read(mine[64:69], remote[1024:1029]),
            await near.cmp_swap(mine[128:136], remote[4096:4104], compare=0, swap=9),
            await near.fetch_add(mine[128:136], remote[4096:4104], add=3),
        ]
        for wc in wcs:
            wc.raise_for_status()
        assert [wc.opcode for wc in wcs] == [
            *(OPCODES.SEND, OPCODES.SEND, OPCODES.SEND, OPCODES.RDMA_WRITE, OPCODES.RDMA_WRITE),
            *(OPCODES.RDMA_READ, OPCODES.COMP_SWAP, OPCODES.FETCH_ADD),
        ]
        assert bytes(real.a.buffer[64:69]) == b"hello"
        assert real.b.buffer[4096] == 12
        arrived = [await real.b.cq.next() for _ in range(4)]
        assert [wc.byte_len for wc in arrived][:3] == [5, 5, 2]

    run(body)


def test_every_awaitable_beyond_the_first_verbs(real: Pair, run: Run) -> None:
    near, _ = real.connected()
    rights = hca.Access.LOCAL_WRITE | hca.Access.MW_BIND | hca.Access.FLUSH_GLOBAL
    rights |= hca.Access.REMOTE_WRITE | hca.Access.REMOTE_ATOMIC
    theirs = real.b.keep(real.b.pd.reg_mr(bytearray(64), rights))
    own = real.a.keep(real.a.pd.reg_mr(bytearray(64), rights))
    window = real.a.keep(real.a.pd.alloc_mw(hca.MwType.TYPE_2))
    mine, remote = real.a.mr, theirs.remote()

    async def body() -> None:
        real.a.buffer[:8] = bytes(range(8))
        near.post_send(
            hca.BindMw(
                window, own[0:8], rkey=window.rkey, access=hca.Access.REMOTE_READ, signaled=True
            )
        )
        wcs = [
            await near.atomic_write(mine[0:8], remote[0:8], wr_id=5),
            await near.masked_cmp_swap(
                mine[64:72],
                remote[8:16],
                compare=0,
                compare_mask=0xFF,
                swap=0xABCD,
                swap_mask=0xFF,
            ),
            await near.masked_fetch_add(
                mine[64:72], remote=remote[8:16], add=0x01FF, boundary=0x80
            ),
            await near.flush(remote, fence=True),
            await near.flush(remote, level=hca.FlushLevel.MR),
            await near.local_inv(window.rkey, fence=True, wr_id=6),
        ]
        for wc in wcs:
            wc.raise_for_status()
        assert [wc.opcode for wc in wcs] == [
            *(OPCODES.ATOMIC_WRITE, OPCODES.MASKED_COMP_SWAP, OPCODES.MASKED_FETCH_ADD),
            *(OPCODES.FLUSH, OPCODES.FLUSH, OPCODES.LOCAL_INV),
        ]
        assert [wcs[0].wr_id, wcs[-1].wr_id] == [5, 6]
        assert theirs.obj[:10] == bytes(range(8)) + bytes([0xCC, 0x01])
        assert window.state is hca.KeyState.FREE
        # Of work that has no method, among those that nobody awaits by itself.
        assert (await real.a.cq.next()).opcode is OPCODES.BIND_MW
        with pytest.raises(TypeError, match="signaled is not for awaited work requests"):
            near.flush(remote, signaled=True)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="remote must be RemoteMemory, not MR"):
            near.flush(theirs)  # type: ignore[arg-type]

    run(body)


def test_what_was_awaited_leaves_nothing_for_the_garbage_collector(real: Pair, run: Run) -> None:
    """Programs that care for latency switch it off; each completion would stay for ever."""
    near, far = real.connected()
    many = 50

    async def body() -> int:
        gc.collect()
        gc.disable()
        try:
            for _ in range(many):
                coming = far.recv(real.b.mr[0:64])
                (await near.send(real.a.mr[0:5])).raise_for_status()
                (await coming).raise_for_status()
            return gc.collect()
        finally:
            gc.enable()

    # The loops leave a few objects of their own.
    assert run(body) < many


def test_a_receive_is_awaited(real: Pair, run: Run) -> None:
    near, far = real.connected()

    async def body() -> None:
        real.b.buffer[:4] = b"ping"
        far.post_send(Send(real.b.mr[0:4], signaled=True))
        wc = await near.recv(real.a.mr[0:64], wr_id=5)
        assert (wc.ok, wc.wr_id, wc.byte_len) == (True, 5, 4)
        assert bytes(real.a.buffer[:4]) == b"ping"
        real.completion(real.b)

    run(body)


def test_a_queue_is_iterated(real: Pair, run: Run) -> None:
    near, far = real.connected(max_send_wr=64, max_recv_wr=64)

    async def body() -> None:
        far.post_recv([Recv(wr_id=number) for number in range(40)])
        near.post_send([Send(signaled=True) for _ in range(40)])
        seen: list[int] = []
        async for wc in real.b.cq:
            seen.append(wc.wr_id)
            if len(seen) == 40:
                break
        assert seen == list(range(40))

    run(body)
    real.completions(real.a, 40)


# --- what goes wrong


def test_an_error_is_returned_not_raised(real: Pair, run: Run) -> None:
    near, _ = real.connected()
    nowhere = hca.RemoteMemory(real.b.mr.addr, 0xBAD, 8)

    async def body() -> None:
        wc = await near.write(real.a.mr[0:8], nowhere)
        assert wc.status is WcStatus.REM_ACCESS_ERR
        with pytest.raises(VerbsError):
            wc.raise_for_status()
        assert (await near.send()).status is WcStatus.WR_FLUSH_ERR
        assert outstanding(real.a.cq) == 0

    run(body)


def test_what_is_refused_leaves_no_trace(real: Pair, run: Run) -> None:
    near, _ = real.connected(max_send_wr=1, max_recv_wr=1)

    async def body() -> None:
        with pytest.raises(VerbsError) as raised:
            await near.send(*[real.a.mr[0:1]] * 30)
        assert raised.value.errno == errno.EINVAL
        with pytest.raises(TypeError, match="signaled is not for awaited"):
            await near.send(signaled=False)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="cqe is not for awaited"):
            await near.send(cqe=Cqe(print))
        with pytest.raises(TypeError, match="remote must be RemoteMemory, not NoneType"):
            await near.write(real.a.mr[0:1])
        with pytest.raises(TypeError, match="remote must be RemoteMemory, not MR"):
            await near.write(real.a.mr[0:1], real.b.mr)
        with pytest.raises(VerbsError, match="inline"):
            await near.send(bytes(100_000), inline=True)
        assert outstanding(real.a.cq) == 0
        # The queue is not awaited: it can be armed by hand.
        assert real.a.cq.req_notify() == 0

    run(body)


def test_no_task_no_wait(real: Pair) -> None:
    coroutine = real.a.cq.next()
    with pytest.raises(RuntimeError, match="in a task of asyncio or trio"):
        coroutine.send(None)
    qp = real.a.qp(QPType.XRC_SEND)
    with pytest.raises(VerbsError, match="has no receive queue"):
        qp.recv().send(None)


def test_a_queue_pair_that_is_reset_or_destroyed_wakes_its_tasks(
    simulated: Pair, run_anyio: Run
) -> None:
    anyio = pytest.importorskip("anyio")

    async def body() -> None:
        for way in ("reset", "destroy"):
            near, _ = simulated.connected(max_recv_wr=8)
            errnos: list[int | None] = []

            async def wait(qp: hca.QP = near, errnos: list[int | None] = errnos) -> None:
                with pytest.raises(VerbsError, match="reset or destroyed") as raised:
                    await qp.recv()
                errnos.append(raised.value.errno)

            with anyio.fail_after(60):
                async with anyio.create_task_group() as group:
                    for _ in range(3):
                        group.start_soon(wait)
                    await anyio.wait_all_tasks_blocked()
                    assert outstanding(simulated.a.cq) == 3
                    if way == "reset":
                        near.modify(qp_state=hca.QPState.RESET)
                    else:
                        near.close()
            assert errnos == [errno.ECANCELED] * 3
            assert outstanding(simulated.a.cq) == 0

    run_anyio(body)


def test_a_queue_that_is_closed_ends_its_iteration(real: Pair, run_anyio: Run) -> None:
    anyio = pytest.importorskip("anyio")

    async def body() -> None:
        cq = real.a.device.create_cq(16)

        async def iterate() -> None:
            with pytest.raises(VerbsError, match="closed while it was awaited") as raised:
                async for _ in cq:
                    raise AssertionError("nothing was posted")
            assert raised.value.errno == errno.ECANCELED

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(iterate)
                await anyio.wait_all_tasks_blocked()
                cq.close()
        with pytest.raises(VerbsError, match="is closed"):
            await cq.next()

    run_anyio(body)


def test_a_device_that_goes_away_under_tasks_wakes_them(run: Run) -> None:
    async def body() -> None:
        with hca.open() as device:
            cq = device.create_cq(16)
            device.adapter.close()
            with pytest.raises(VerbsError, match="is closed") as raised:
                await cq.next()
            assert raised.value.errno == errno.ENODEV

    run(body)
