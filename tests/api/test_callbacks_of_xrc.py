"""Callbacks of receives whose XRC queue goes before the target that took them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

import softhca as hca
from softhca import QPType

from .callbacks import Note, Told
from .hosts import Pair
from .test_callback_memory import direct_cq, process


@dataclass
class Target:
    """An XRC queue of the second host with a target, and who sends to it."""

    pair: Pair
    cq: hca.CallbackCQ
    srq: hca.SRQ
    qp: hca.QP
    sender: hca.QP

    def send(self, count: int) -> None:
        """Sends so many, until the sender knows that they have come."""
        wr = hca.Send(self.pair.a.mr[:8], srqn=self.srq.srqn, signaled=True)
        self.sender.post_send([wr] * count)
        self.pair.completions(self.pair.a, count)


@pytest.fixture
def target(pair: Pair) -> Target:
    cq = direct_cq(pair.b)
    xrcd = pair.b.keep(pair.b.device.alloc_xrcd())
    srq = pair.b.keep(xrcd.create_srq(pair.b.pd, cq, max_wr=16))
    sender = pair.a.qp(QPType.XRC_SEND)
    qp = pair.b.keep(xrcd.create_qp())
    sender.connect(qp.info(srqn=srq.srqn))
    qp.connect(sender.info())
    return Target(pair, cq, srq, qp, sender)


@pytest.mark.parametrize("then", ["processed", "target", "cq"])
def test_what_has_completed_when_its_queue_goes_is_still_to_come(target: Target, then: str) -> None:
    told = Told()
    for wr_id in range(3):
        target.srq.post_recv(hca.Recv(target.pair.b.mr[:64], cqe=Note(told), wr_id=wr_id))
    target.send(1)
    target.srq.close()
    assert told.forgotten == 2
    if then == "processed":
        assert target.cq.process_direct() == 1
        assert (told.wr_ids, told.forgotten) == ([0], 2)
    else:
        (target.qp if then == "target" else target.cq).close()
        assert (told.wr_ids, told.forgotten) == ([], 3)
    assert target.pair.b.device.adapter.cqes_under_way == 0


def test_so_is_what_was_polled_when_its_queue_goes(target: Target) -> None:
    told = Told()
    note = Note(told, lambda *_: target.srq.close())
    for wr_id in range(4):
        target.srq.post_recv(hca.Recv(target.pair.b.mr[:64], cqe=note, wr_id=wr_id))
    target.send(3)
    process(target.pair, target.cq, told, 3)
    assert (told.wr_ids, told.forgotten) == ([0, 1, 2], 1)
