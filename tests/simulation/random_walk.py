"""A random walk over verbs by two hosts, with a model of reliable connections as the oracle.

The model knows no packet. It keeps, for each connection, what was posted and must come of it: the
bytes that a SEND delivers, in order and once; where a WRITE puts them; what a READ finds; what an
atomic returns. Whatever the network loses, the outcome is the same.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import softhca as hca
from softhca import QPState, WcStatus
from softhca.testing import Fabric

SLOT = 2048
SLOTS = 16
DEPTH = 16


@dataclass
class Expected:
    """A work request of the send queue, and what must come of it."""

    number: int
    kind: str
    signaled: bool
    data: bytes = field(default=b"", repr=False)
    slot: int = 0
    fails: WcStatus | None = None


@dataclass
class Connection:
    """Two connected queue pairs: one asks, the other answers."""

    asker: hca.QP
    answerer: hca.QP
    ask_cq: hca.CQ
    answer_cq: hca.CQ
    here: bytearray
    there: bytearray
    here_mr: hca.MR
    there_mr: hca.MR
    sealed_mr: hca.MR  # The same bytes as there_mr, without rights for peers.
    posted: deque[Expected] = field(default_factory=deque)
    receives: deque[int] = field(default_factory=deque)
    messages: deque[tuple[str, bytes]] = field(default_factory=deque)
    added: int = 0
    returned: int = 0
    failed: bool = False
    flushing: bool = False  # Everything completes, unsignaled requests too.
    broken: bool = False  # The program took it to ERR.


class Walk:
    """One walk.

    Args:
        fabric: Where; its seed decides everything.
    """

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.draw = random.Random(fabric.seed)
        self.hosts = fabric.hosts(2, retry_early=self.draw.random() < 0.5)
        self.pds = [device.alloc_pd() for device in self.hosts]
        self.connections: list[Connection] = []
        self.numbers = 0
        self.done = 0

    def connect(self) -> None:
        """Makes a connection."""
        draw = self.draw
        near = draw.randrange(2)
        ends = [self.hosts[near], self.hosts[1 - near]]
        pds = [self.pds[near], self.pds[1 - near]]
        cqs = [device.create_cq(4 * DEPTH) for device in ends]
        buffers = [bytearray(SLOT * SLOTS + 8) for _ in ends]
        mrs = [pd.reg_mr(buffer) for pd, buffer in zip(pds, buffers, strict=True)]
        qps = [
            pd.create_qp(
                hca.QPType.RC, send_cq=cq, recv_cq=cq, max_send_wr=DEPTH, max_recv_wr=DEPTH
            )
            for pd, cq in zip(pds, cqs, strict=True)
        ]
        sealed = pds[1].reg_mr(buffers[1], access=hca.Access.LOCAL_WRITE)
        made = Connection(*qps, *cqs, *buffers, *mrs, sealed)
        self.connections.append(made)
        self._join(made)

    def _join(self, c: Connection) -> None:
        draw = self.draw
        # Close to where PSNs wrap, as often as not.
        psns = [draw.choice([0, 0xFFFFF8, 0x7FFFFC, draw.randrange(1 << 24)]) for _ in range(2)]
        mtu = draw.choice([hca.Mtu.MTU_256, hca.Mtu.MTU_1024])
        depth = draw.choice([1, 4, 16])
        common = {"timeout": 8, "path_mtu": mtu, "min_rnr_timer": 1}
        c.asker.connect(
            c.answerer.info(), sq_psn=psns[0], rq_psn=psns[1], max_rd_atomic=depth, **common
        )
        c.answerer.connect(
            c.asker.info(), sq_psn=psns[1], rq_psn=psns[0], max_dest_rd_atomic=depth, **common
        )
        c.there[SLOT * SLOTS :] = bytes(8)
        c.added = c.returned = 0
        c.posted.clear()
        c.receives.clear()
        c.messages.clear()
        c.failed = c.broken = c.flushing = False

    def post(self, c: Connection) -> None:
        """Posts something to the send queue."""
        draw = self.draw
        if len(c.posted) >= DEPTH - 1 or c.failed or c.broken:
            return
        self.numbers += 1
        kind = draw.choice(["send", "send", "write", "write", "imm", "read", "add", "swap", "bad"])
        if kind == "bad" and draw.random() < 0.8:
            kind = "write"
        used = {e.slot for e in c.posted}
        free = [slot for slot in range(SLOTS) if slot not in used]
        slot = draw.choice(free)
        size = draw.choice([0, 1, 255, 256, 257, 1000, SLOT])
        data = draw.randbytes(size)
        start = slot * SLOT
        signaled = draw.random() < 0.7 or len(c.posted) > DEPTH // 2
        expected = Expected(self.numbers, kind, signaled, data, slot)
        local = c.here_mr[start : start + size]
        remote = c.there_mr.remote()[start : start + size]
        options = {"wr_id": self.numbers, "signaled": signaled, "fence": draw.random() < 0.1}
        word = c.there_mr.remote()[SLOT * SLOTS :]
        if kind == "read":
            c.there[start : start + size] = data
            c.here[start : start + size] = bytes(size)
            wr: hca.SendWr = hca.Read(local, remote=remote, **options)
        elif kind in ("add", "swap"):
            c.here[start : start + 8] = bytes(8)
            place = c.here_mr[start : start + 8]
            expected.data = c.added.to_bytes(8, "little")
            if kind == "add":
                wr = hca.FetchAdd(place, remote=word, add=3, **options)
                c.added += 3
            else:
                wr = hca.CmpSwap(
                    place, remote=word, compare=c.added, swap=c.added + 1000, **options
                )
                c.added += 1000
        else:
            c.here[start : start + size] = data
            c.there[start : start + size] = bytes(size) if kind != "bad" else b"\xee" * size
            if kind == "send":
                wr = hca.Send(local, **options)
                c.messages.append(("send", data))
            elif kind == "imm":
                wr = hca.WriteImm(local, remote=remote, imm=self.numbers, **options)
                c.messages.append(("imm", self.numbers.to_bytes(4, "big")))
            elif kind == "write":
                wr = hca.Write(local, remote=remote, **options)
            else:
                size = max(size, 1)
                local = c.here_mr[start : start + size]
                wr = self._bad(c, local, start, size, options)
                expected.fails = WcStatus.REM_ACCESS_ERR
                c.failed = True
        c.posted.append(expected)
        c.asker.post_send(wr)

    def _bad(
        self, c: Connection, local: hca.Sge, start: int, size: int, options: dict[str, Any]
    ) -> hca.SendWr:
        """A request for bytes that the peer gives no right to."""
        there = c.there_mr.remote()
        end = there.addr + len(c.there)
        kind = self.draw.randrange(5)
        if kind == 0:  # A byte too far.
            remote = hca.RemoteMemory(end - size + 1, there.rkey, size)
        elif kind == 1:  # Far outside.
            remote = hca.RemoteMemory(end + start, there.rkey, size)
        elif kind == 2:  # A key that there is not.
            remote = hca.RemoteMemory(there.addr + start, there.rkey ^ 0x80, size)
        else:  # A region that is not for peers.
            remote = hca.RemoteMemory(c.sealed_mr.addr + start, c.sealed_mr.lkey, size)
        if kind == 4:
            return hca.Read(local, remote=remote, **options)
        return hca.Write(local, remote=remote, **options)

    def receive(self, c: Connection) -> None:
        """Posts a receive."""
        if len(c.receives) >= DEPTH or c.failed or c.broken:
            return
        self.numbers += 1
        c.receives.append(self.numbers)
        # Receives land in memory of their own, which nobody else writes.
        buffer = bytearray(SLOT)
        mr = self.pds[self.hosts.index(c.answerer.device)].reg_mr(buffer)
        self._landings[self.numbers] = (mr, buffer)
        c.answerer.post_recv(hca.Recv(mr[:], wr_id=self.numbers))

    _landings: dict[int, tuple[hca.MR, bytearray]]

    def poll(self, c: Connection) -> None:
        """Takes what completed, and compares."""
        for cq, take in ((c.ask_cq, self._asked), (c.answer_cq, self._answered)):
            hca_of = cq.device.adapter
            for wc in hca_of.poll_cq(cq.handle, 4, hca.WC, progress=False):
                take(c, wc)

    def _asked(self, c: Connection, wc: hca.WC) -> None:
        self.done += 1
        while c.posted:
            expected = c.posted.popleft()
            if expected.number == wc.wr_id:
                break
            assert not expected.signaled, f"{expected} was skipped by {wc!r}"
            assert not c.flushing, f"{expected} was not flushed"
            self._placed(c, expected)
        else:
            raise AssertionError(f"{wc!r} was never posted")
        c.flushing = not wc.ok
        if wc.ok:
            assert expected.fails is None, f"{expected} succeeded"
            self._placed(c, expected)
        elif expected.fails is not None and not c.broken:
            # The NAK may have been lost, and who sent it answers no more.
            known = (expected.fails, WcStatus.RETRY_EXC_ERR, WcStatus.WR_FLUSH_ERR)
            assert wc.status in known, (expected, wc)
        else:
            assert c.failed or c.broken, f"{expected}: {wc!r}"
            # A response was lost whose responder has been in ERR since the bad one behind it.
            lost = wc.status is WcStatus.RETRY_EXC_ERR
            assert lost or c.broken or wc.status is WcStatus.WR_FLUSH_ERR, (expected, wc)

    def _placed(self, c: Connection, e: Expected) -> None:
        start = e.slot * SLOT
        if e.kind in ("write", "imm"):
            assert c.there[start : start + len(e.data)] == e.data, f"{e} is not there"
        elif e.kind == "read":
            assert c.here[start : start + len(e.data)] == e.data, f"{e} is not here"
        elif e.kind in ("add", "swap"):
            assert c.here[start : start + 8] == e.data, (
                f"{e} returned {c.here[start : start + 8].hex()}"
            )

    def _answered(self, c: Connection, wc: hca.WC) -> None:
        self.done += 1
        assert c.receives, f"{wc!r} without a receive"
        assert c.receives.popleft() == wc.wr_id, "receives complete in order"
        mr, buffer = self._landings.pop(wc.wr_id)
        if not wc.ok:
            assert c.failed or c.broken, repr(wc)
        else:
            kind, data = c.messages.popleft()
            if kind == "send":
                assert wc.byte_len == len(data), (wc, len(data))
                assert buffer[: len(data)] == data, "a message arrived changed"
            else:
                assert (wc.imm_data or 0).to_bytes(4, "big") == data, (wc, data)
        mr.close()

    def again(self, c: Connection) -> None:
        """Takes a connection to RESET and begins anew, or destroys it."""
        self.drain(c, most=200)
        for qp in (c.asker, c.answerer):
            qp.modify(qp_state=QPState.ERR)
        c.broken = True
        self.drain(c, most=300)
        assert not any(e for e in c.posted if e.signaled), "all are flushed"
        assert not c.receives, "all receives are flushed"
        for qp in (c.asker, c.answerer):
            qp.modify(qp_state=QPState.RESET)
        # What is still under way from before belongs to nobody.
        self.fabric.run_for(0.001)
        if self.draw.random() < 0.5:
            self._join(c)
            return
        self.connections.remove(c)
        for one in (c.asker, c.answerer, c.here_mr, c.there_mr, c.sealed_mr):
            one.close()
        for one in (c.ask_cq, c.answer_cq):
            one.close()

    def drain(self, c: Connection, most: int) -> None:
        """Lets a connection finish what it can."""
        for round_number in range(most):
            if not c.posted and not c.messages and not (c.broken and c.receives):
                break
            if c.failed and not c.broken and not any(e.signaled for e in c.posted):
                break
            # Of all: time passes for them too, and RNR retries do not restore retry_cnt.
            for one in self.connections:
                if len(one.receives) < len(one.messages):
                    self.receive(one)
            self.poll(c)
            self.fabric.run_for(20e-6 if round_number < 100 else 1e-3)

    def run(self, steps: int) -> None:
        """Walks."""
        self._landings = {}
        draw = self.draw
        for step in range(steps):
            if step % 16 == 0:
                self.fabric.check()
            if not self.connections or (len(self.connections) < 4 and draw.random() < 0.05):
                self.connect()
            c = draw.choice(self.connections)
            action = draw.choices(
                [self.post, self.receive, self.poll, self.again, None], [8, 4, 4, 0.15, 3]
            )[0]
            if action is None:
                self.fabric.run_for(draw.choice([1e-6, 1e-5, 1e-4]))
            else:
                action(c)
        for c in list(self.connections):
            self.drain(c, most=2000)
            assert c.failed or not any(e.signaled for e in c.posted), "all complete"
            assert c.failed or not c.messages, "all messages arrive"


def faults(fabric: Fabric) -> None:
    """A bad network."""
    draw = random.Random(fabric.seed ^ 0x5EED)
    for word in ("drop", "duplicate", "reorder", "corrupt"):
        if draw.random() < 0.5:
            getattr(fabric.faults, word)(probability=draw.choice([0.01, 0.05]))
    if draw.random() < 0.5:
        fabric.faults.delay((0, 30_000), probability=0.05)
    if draw.random() < 0.3:
        fabric.faults.duplicate(delay_ns=draw.choice([5_000, 200_000]), probability=0.05)
    if draw.random() < 0.2:
        fabric.faults.rnr(tries=5, nth=None or range(2, 1000, 7))


def walk(seed: int, steps: int = 150) -> int:
    """Walks once, and checks the trace; returns how many completions there were."""
    jitter_ns = 3000 if seed % 3 == 0 else 0
    ack_delay_ns = 2000 if seed % 5 < 2 else 0
    with Fabric(seed, jitter_ns=jitter_ns, ack_delay_ns=ack_delay_ns) as fabric:
        faults(fabric)
        one = fabric.keep(Walk(fabric))
        one.run(steps)
        return one.done


if __name__ == "__main__":
    first, count = int(sys.argv[1]), int(sys.argv[2])
    for seed in range(first, first + count):
        try:
            walk(seed)
        except BaseException:
            print(f"seed {seed} fails", flush=True)
            raise
    print(f"{count} seeds pass")
