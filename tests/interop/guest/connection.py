"""Two connected queue pairs, one on each side, with the verbs that checks are written in."""

from __future__ import annotations

import itertools
import time
from types import TracebackType
from typing import Any

from pattern import digest, pattern
from side import ARENA_BYTES, ATTRIBUTES, Side

# A requester sends from the first half of its arena; what arrives lands in the second half.
LANDING = ARENA_BYTES // 2
SUCCESS = 0
REM_ACCESS_ERR = 10
WAIT_SECONDS = 30.0

_seeds = itertools.count(1)


class CheckError(Exception):
    """A check did not hold; its text says what was seen."""


class NotOfferedError(Exception):
    """One of the sides cannot do what a check is about; its text says which."""


def demand(holds: bool, what: str, seen: Any = "") -> None:
    if not holds:
        raise CheckError(f"{what}: {seen}" if seen != "" else what)


class Connection:
    """A queue pair of the requester and one of the responder, connected at a path MTU."""

    def __init__(
        self,
        requester: Side,
        responder: Side,
        kind: str,
        mtu: int,
        depth: int = 64,
        **attributes: int,
    ) -> None:
        self.requester, self.responder, self.kind, self.mtu = requester, responder, kind, mtu
        chosen = {**ATTRIBUTES, **attributes}
        here, there = requester.create_qp(kind, depth), responder.create_qp(kind, depth)
        self.near, self.far = here, there
        self.qpn, self.far_qpn = here["qpn"], there["qpn"]
        # The responder first, so that it is ready when the requester begins.
        responder.connect(self.far_qpn, here, mtu, chosen)
        requester.connect(self.qpn, there, mtu, chosen)
        self._wr_ids = itertools.count(1)

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.requester.close_qp(self.qpn)
        self.responder.close_qp(self.far_qpn)

    # --- work requests

    def fill(self, length: int, offset: int = 0) -> str:
        """Puts new bytes where the requester sends from; returns their digest."""
        seed = next(_seeds)
        self.requester.fill(offset, length, seed)
        return digest(pattern(seed, length))

    def post(self, op: str, length: int, offset: int = 0, at: int = LANDING, **more: Any) -> int:
        """Posts a send; `at` is the offset in the responder's arena for RDMA and atomics."""
        wr = {"op": op, "offset": offset, "length": length, "wr_id": next(self._wr_ids), **more}
        if not op.startswith("SEND"):
            wr.setdefault("remote", self.far["addr"] + at)
            wr.setdefault("rkey", self.far["rkey"])
        self.requester.post_send(self.qpn, wr)
        return wr["wr_id"]

    def post_recv(self, length: int, at: int = LANDING, wr_id: int = 0) -> None:
        self.responder.post_recv(self.far_qpn, at, length, wr_id)

    # --- completions

    def sent(self, count: int = 1, status: int = SUCCESS) -> list[dict[str, Any]]:
        wcs = self.requester.wait(self.qpn, count, WAIT_SECONDS)
        demand(len(wcs) == count, f"{count} send completions", wcs)
        demand(all(wc["status"] == status for wc in wcs), f"send status {status}", wcs)
        return wcs

    def received(self, count: int = 1) -> list[dict[str, Any]]:
        wcs = self.responder.wait(self.far_qpn, count, WAIT_SECONDS)
        demand(len(wcs) == count, f"{count} receive completions", wcs)
        demand(all(wc["status"] == SUCCESS for wc in wcs), "receive status 0", wcs)
        return wcs

    def nothing_sent_for(self, seconds: float) -> None:
        time.sleep(seconds)
        wcs = self.requester.wait(self.qpn, 1, 0)
        demand(not wcs, "no completion yet", wcs)

    def in_good_state(self) -> None:
        states = (self.requester.state(self.qpn), self.responder.state(self.far_qpn))
        demand(states == ("RTS", "RTS"), "both queue pairs in RTS", states)
