"""Which sends have their callbacks called: who gives one wants it, and may say that he does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import softhca as hca
from softhca import PollContext, SendFlags

from .callbacks import Note, Told, to_itself

MAKERS: dict[str, Callable[..., Any]] = {
    "Send": lambda mr, **options: hca.Send(mr[:8], **options),
    "Send, inline": lambda mr, **options: hca.Send(b"8 bytes.", inline=True, **options),
    "SendImm": lambda mr, **options: hca.SendImm(mr[:8], imm=1, **options),
    "Write": lambda mr, **options: hca.Write(mr[:8], remote=mr.remote(), **options),
    "Read": lambda mr, **options: hca.Read(mr[:8], remote=mr.remote(), **options),
    "FetchAdd": lambda mr, **options: hca.FetchAdd(
        mr[:8], remote=mr.remote()[:8], add=1, **options
    ),
    "LocalInv": lambda mr, **options: hca.LocalInv(mr.rkey, **options),
}


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Makes a work request of some kind, with these options."""
    return MAKERS[request.param]


def test_who_gives_a_callback_is_signaled_unless_told_otherwise(make: Callable[..., Any]) -> None:
    with hca.open() as device, device.alloc_pd() as pd, pd.reg_mr(bytearray(64)) as mr:
        cqe = hca.Cqe(print)

        def is_signaled(**options: Any) -> bool:
            return bool(make(mr, **options).send_flags & SendFlags.SIGNALED)

        assert is_signaled(cqe=cqe)
        assert is_signaled(cqe=cqe, signaled=None)
        assert is_signaled(signaled=True, cqe=cqe)
        assert not is_signaled(cqe=cqe, signaled=False)
        assert not is_signaled(signaled=False, cqe=cqe)
        assert not is_signaled()
        assert not is_signaled(cqe=None)
        assert not is_signaled(signaled=None)
        assert is_signaled(cqe=None, signaled=True)


def test_a_read_tells_its_callback() -> None:
    with hca.open() as device:
        pd = device.alloc_pd()
        cq = device.alloc_cq(16, poll_context=PollContext.DIRECT)
        near, _ = to_itself(pd, cq)
        mr = pd.reg_mr(bytearray(range(16)))
        told, silent = Told(), Told()
        near.post_send(
            [
                hca.Read(mr[:8], remote=mr.remote()[8:16], cqe=Note(silent), signaled=False),
                hca.Read(mr[:8], remote=mr.remote()[8:16], cqe=Note(told), wr_id=5),
            ]
        )
        while not told.wr_ids:
            cq.process_direct()
        assert told.wr_ids == [5]
        assert bytes(memoryview(mr.obj)[:8]) == bytes(range(8, 16))
        assert silent.wr_ids == []
        assert silent.forgotten == 0


def test_an_error_reaches_who_wants_nothing_else() -> None:
    with hca.open() as device:
        pd = device.alloc_pd()
        cq = device.alloc_cq(16, poll_context=PollContext.DIRECT)
        near, _ = to_itself(pd, cq)
        mr = pd.reg_mr(bytearray(16))
        wrong = hca.RemoteMemory(mr.addr, mr.rkey ^ 0xFF, 16)
        told = Told()
        near.post_send(hca.Read(mr[:8], remote=wrong, cqe=Note(told), signaled=False, wr_id=6))
        while not told.wr_ids:
            cq.process_direct()
        assert told.wr_ids == [6]
