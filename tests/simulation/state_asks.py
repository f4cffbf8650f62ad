"""What the ends of a walk over states ask of each other, and what must come of it."""

from __future__ import annotations

import random
from typing import Any

import softhca as hca
from softhca import Access, EventType, QPType, WcStatus
from softhca.testing import Fabric

from .real_hosts import RealHosts
from .state_ends import (
    DEPTH,
    IN_AT,
    INLINE,
    SLOT,
    SLOTS,
    WORD_AT,
    Asked,
    End,
    Host,
    any_options,
    pieces,
)

SIZES = (0, 1, 8, INLINE, INLINE + 1, 255, 256, 257, 1000, 1023, 1024, 1025, SLOT)
# Where PSNs wrap and where half of them lie behind; far enough apart that what is left of one
# connection is none of the next one's.
PSNS = (0x200000, 0x3FFFF0, 0x7FFFFC, 0xBFFFF0, 0xFFFFF8)
SENDS = ("send", "simm", "sendinv")
KINDS = [*SENDS[:2], "send", "imm", "write", "write", "read", "read", "add", "swap", "awrite"]
QUIET_EVENTS = (
    EventType.COMM_EST,
    EventType.QP_LAST_WQE_REACHED,
    EventType.PATH_MIG,
    EventType.PATH_MIG_ERR,
)


class Asks:
    """Two hosts, connections between them, and a model of what is asked.

    Args:
        world: Where; its seed decides what is done.
    """

    def __init__(self, world: Fabric | RealHosts) -> None:
        self.world = world
        self.draw = random.Random(world.seed)
        early = self.draw.random() < 0.5
        self.hosts = [Host(d, self.draw) for d in world.hosts(2, retry_early=early)]
        self.pairs: list[tuple[End, End]] = []
        # Threads of a busy machine are kept from running for longer than hosts of a fabric.
        self.timeout = 17 if isinstance(world, RealHosts) else 8
        self.numbers = self.done = 0

    @property
    def both_ways(self) -> list[tuple[End, End]]:
        """Each end with its peer."""
        return [way for pair in self.pairs for way in (pair, pair[::-1])]

    # --- connections

    def connect(self) -> None:
        draw = self.draw
        near = draw.randrange(2)
        kind = draw.choice([QPType.RC] * 5 + [QPType.XRC_SEND] * 2 + [QPType.UC])
        kinds = (kind, QPType.XRC_RECV if kind is QPType.XRC_SEND else kind)
        a, b = (
            End(host, kind, kind is QPType.XRC_RECV or draw.random() < 0.4, draw)
            for host, kind in zip((self.hosts[near], self.hosts[1 - near]), kinds, strict=True)
        )
        self.pairs.append((a, b))
        self._join(a, b)

    def _join(self, a: End, b: End) -> None:
        draw = self.draw
        for end in (a, b):
            end.psns.append(draw.choice([psn for psn in PSNS if psn not in end.psns]))
        depths = [draw.choice([1, 2, 16]) for _ in range(2)]
        mtu = draw.choice([hca.Mtu.MTU_256, hca.Mtu.MTU_1024])
        timer = draw.choice([1, 1, 6, 12])
        for i, (one, other) in enumerate(((a, b), (b, a))):
            values = {"sq_psn": one.psns[-1], "rq_psn": other.psns[-1], "path_mtu": mtu}
            if one.kind is not QPType.UC:
                answers = {"max_dest_rd_atomic": depths[1 - i], "min_rnr_timer": timer}
                values |= {"timeout": self.timeout} | (answers if one.answers else {})
                values |= {"max_rd_atomic": depths[i]} if one.asks else {}
            one.qp.connect(other.qp.info(), **values)
            one.begin()

    # --- asking

    def post(self, a: End, b: End) -> None:
        """Asks for something."""
        draw = self.draw
        if not a.asks or len(a.posted) >= DEPTH:
            return
        kind = draw.choice(["simm", "imm", "write"] if a.kind is QPType.UC else [*KINDS, "flush"])
        if b.window is not None and draw.random() < 0.3:
            kind = draw.choice(["lent", "lent", "sendinv"])
        used = {e.slot for e in a.posted}
        slot = draw.choice([s for s in range(SLOTS) if s not in used])
        size = 8 if kind in ("add", "swap", "awrite") else draw.choice(SIZES)
        self.numbers += 1
        asked = Asked(self.numbers, kind, draw.random() < 0.7, slot, draw.randbytes(size))
        wr = self._request(a, b, asked, any_options(a, b, self.numbers, draw))
        a.posted.append(asked)
        a.qp.post_send(wr)

    def _request(self, a: End, b: End, e: Asked, options: dict[str, Any]) -> hca.SendRequest:
        here, there, size = e.slot * SLOT, IN_AT + e.slot * SLOT, len(e.data)
        local = pieces(a.mr, here, size, self.draw)
        remote = b.mr.remote()[there : there + size]
        options["signaled"] = e.signaled
        if e.kind == "flush":
            return hca.Flush(remote=remote, **options)
        if e.kind == "read":
            b.buffer[there : there + size] = e.data
            a.buffer[here : here + size] = bytes(size)
            return hca.Read(*local, remote=remote, **options)
        if e.kind in ("add", "swap"):
            word = b.mr.remote()[WORD_AT:]
            a.buffer[here : here + 8] = bytes(8)
            e.data, before = a.added.to_bytes(8, "little"), a.added
            a.added += 3 if e.kind == "add" else 1000
            if e.kind == "add":
                return hca.FetchAdd(*local, remote=word, add=3, **options)
            return hca.CmpSwap(*local, remote=word, compare=before, swap=a.added, **options)
        a.buffer[here : here + size] = e.data
        if size <= INLINE and e.kind != "awrite" and self.draw.random() < 0.3:
            options["inline"] = True
        if e.kind in ("simm", "imm") and a.kind is QPType.UC:
            b.maybe[e.number] = (e.kind, e.data)
        elif e.kind in SENDS:
            b.messages.append((e.kind, e.data))
        elif e.kind == "imm":
            b.messages.append(("imm", e.number.to_bytes(4, "big")))
        if e.kind in SENDS:
            return self._message(b, e, local, options)
        b.buffer[there : there + size] = bytes(size)
        if e.kind == "imm":
            return hca.WriteImm(*local, remote=remote, imm=e.number, **options)
        if e.kind == "awrite":
            return hca.AtomicWrite(*local, remote=remote, **options)
        if e.kind == "lent":
            assert b.window is not None
            remote = b.window[here : here + size]
        return hca.Write(*local, remote=remote, **options)

    def _message(self, b: End, e: Asked, local: list[hca.Sge], options: Any) -> hca.SendRequest:
        options["solicited"] = self.draw.random() < 0.2
        if e.kind == "send":
            return hca.Send(*local, **options)
        if e.kind == "simm":
            return hca.SendImm(*local, imm=e.number, **options)
        assert b.window is not None
        rkey, b.window = b.window.rkey, None
        options["fence"] = True
        return hca.SendInv(*local, rkey=rkey, **options)

    def lend(self, b: End) -> None:
        """Binds a window on what the peer writes to."""
        taken_away = any(kind == "sendinv" for kind, _ in b.messages)
        if b.kind is not QPType.RC or b.has_window() or taken_away or len(b.posted) >= DEPTH:
            return
        self.numbers += 1
        bind = hca.BindMw(
            b.mw,
            b.mr[IN_AT:WORD_AT],
            access=Access.REMOTE_WRITE,
            rkey=hca.inc_rkey(b.mw.rkey),
            wr_id=self.numbers,
            signaled=True,
        )
        b.posted.append(Asked(self.numbers, "bind", True, -1, b""))
        b.binding = bind.remote
        b.qp.post_send(bind)

    # --- polling

    def poll(self) -> None:
        """Takes what completed and what happened, and compares."""
        on_wire = isinstance(self.world, RealHosts)
        for host in self.hosts:
            for wc in host.receives.poll(self.world.now_ns, progress=on_wire):
                self._received(host.ends[wc.qp_num], wc)
            while (event := host.device.poll_async_event()) is not None:
                self._happened(event)
        for a, b in self.both_ways:
            for wc in a.sends.poll(self.world.now_ns, progress=on_wire):
                self._sent(a, b, wc)

    def _happened(self, event: Any) -> None:
        kind, element = event.event_type, event.element
        event.ack()
        if kind is EventType.SQ_DRAINED:
            end = next(end for end, _ in self.both_ways if end.qp is element)
            end.drained += 1
            assert end.drained == 1, "one event of each draining"
        elif kind is EventType.SRQ_LIMIT_REACHED:
            pool = next(h.pools[id(element)] for h in self.hosts if id(element) in h.pools)
            assert pool.limit, "a limit that is not armed was reached"
            pool.limit = 0
        else:
            assert kind in QUIET_EVENTS, kind

    def _sent(self, a: End, b: End, wc: hca.WC) -> None:
        self.done += 1
        while a.posted:
            e = a.posted.popleft()
            if e.number == wc.wr_id:
                break
            is_owed = e.signaled or a.flushed
            assert not is_owed, f"{e} was skipped by {wc!r}"
            self._placed(a, b, e)
        else:
            raise AssertionError(f"{wc!r} was never posted")
        if a.flushing and not wc.ok:
            assert wc.status is WcStatus.WR_FLUSH_ERR, repr(wc)
            a.flushed = True
            return
        assert wc.ok, f"{e}: {wc!r} {wc.why}"
        assert not a.flushed, f"{wc!r} behind one that was flushed"
        self._placed(a, b, e)

    def _placed(self, a: End, b: End, e: Asked) -> None:
        here, there, size = e.slot * SLOT, IN_AT + e.slot * SLOT, len(e.data)
        if e.kind == "bind":
            a.window, a.binding = a.binding, None
        elif e.kind in ("write", "imm", "awrite", "lent") and a.kind is not QPType.UC:
            assert b.buffer[there : there + size] == e.data, f"{e} is not there"
        elif e.kind in ("read", "add", "swap"):
            assert a.buffer[here : here + size] == e.data, f"{e} is not here"

    def _received(self, b: End, wc: hca.WC) -> None:
        self.done += 1
        got = b.pool.take(wc.wr_id, in_order=not b.shared)
        if not wc.ok:
            # Of a shared queue, a message that is cut short keeps what it has taken.
            is_cut = b.kind is QPType.UC and b.shared and wc.status is WcStatus.REM_ABORT_ERR
            assert b.flushing or is_cut, f"{wc!r} {wc.why}"
            return
        if b.kind is QPType.UC:
            kind, data = b.maybe[wc.imm_data or 0]
            assert (wc.opcode is hca.WcOpcode.RECV_RDMA_WITH_IMM) == (kind == "imm"), wc
            assert wc.byte_len == len(data)
            assert kind == "imm" or got[: len(data)] == data, "a message arrived changed"
            return
        assert b.messages, f"{wc!r} was not sent"
        kind, data = b.messages.popleft()
        if kind == "imm":
            assert wc.opcode is hca.WcOpcode.RECV_RDMA_WITH_IMM, wc
            assert (wc.imm_data or 0).to_bytes(4, "big") == data, (wc, data)
            return
        assert wc.byte_len == len(data), (kind, wc, len(data))
        assert got[: len(data)] == data, "a message arrived changed"
        assert (wc.imm_data is not None) == (kind == "simm"), wc
        assert (wc.invalidated_rkey is not None) == (kind == "sendinv"), wc
        if kind == "sendinv":
            assert b.mw.rkey == wc.invalidated_rkey
            assert b.mw.state is hca.KeyState.FREE, "a window was not taken away"

    def feed(self, b: End) -> None:
        """Receives for what is on its way to this end."""
        for _ in range(len(b.messages) + 1 if b.answers else 0):
            self.numbers += 1
            b.pool.post(self.numbers)
