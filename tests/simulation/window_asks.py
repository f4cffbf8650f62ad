"""What a walk over windows asks through their keys, and what must come of it."""

from __future__ import annotations

import mmap
import random
from collections import deque

import softhca as hca
from softhca import Access, MwType, WcStatus
from softhca.testing import Fabric

from .real_hosts import RealHosts
from .window_ends import (
    COUNT_AT,
    DEPTH,
    LENT_BYTES,
    PART,
    READ_BYTES,
    RIGHT,
    SLOT,
    SLOTS,
    WRITE_AT,
    Asked,
    Lending,
    Link,
    Window,
)

SIZES = (0, 1, 255, 256, 257, 1023, 1024, 1025, 5000, 5000, 20_000, SLOT)
WINDOWS = 6


class WindowAsks:
    """A host that lends its memory, one that uses it, and a model of what is asked.

    Args:
        world: Where; its seed decides what is done.
        lossy: Whether refusals may be lost on their way.
    """

    def __init__(self, world: Fabric | RealHosts, lossy: bool) -> None:
        self.world, self.lossy = world, lossy
        self.draw = draw = random.Random(world.seed ^ 0x31D0)
        self.on_wire = isinstance(world, RealHosts)
        self.timeout = 17 if self.on_wire else 8
        kind = draw.choice(["2A", "2B"])
        asks, lends = world.hosts(2, retry_early=draw.random() < 0.5, windows=kind)
        asking, self.lending = asks.alloc_pd(), lends.alloc_pd()
        self.memory = mmap.mmap(-1, WINDOWS * PART)
        self.landing = self.lending.reg_mr(mmap.mmap(-1, 8192))
        mr = self.lending.reg_mr(self.memory, access=Access.LOCAL_WRITE | Access.MW_BIND)
        self.windows = [Window(self.lending, mr, self.memory, n) for n in range(WINDOWS)]
        for window in self.windows:
            window.fill(draw)
        self.links = [Link(asking, self.lending) for _ in range(draw.choice([1, 2, 3]))]
        self.over: deque[Lending] = deque(maxlen=4)  # Whose keys are known, and give nothing.
        self.numbers = self.done = self.refused = 0

    # --- asking

    def _slot(self, link: Link) -> int | None:
        used = {e.slot for e in link.asked}
        free = [slot for slot in range(SLOTS) if slot not in used]
        return self.draw.choice(free) if free else None

    def ask(self, link: Link) -> None:
        """Asks for something through a key that there is, or was."""
        draw = self.draw
        slot = self._slot(link)
        if len(link.asked) >= DEPTH or link.failed or link.broken or slot is None:
            return
        known = [w.lending for w in self.windows if w.lending is not None and w.lending.bound]
        usable = [m for m in known if self._is_usable(link, m) or draw.random() < 0.01]
        if self.over and draw.random() < 0.02:
            usable = list(self.over)
        if not usable:
            return
        lending = draw.choice(usable)
        kind = draw.choice(["read", "write", "write", "add"])
        if not RIGHT[kind] & lending.access and draw.random() < 0.9:
            return
        size = 8 if kind == "add" else draw.choice(SIZES)
        e = Asked(self.numbers + 1, kind, lending, slot)
        if kind == "write":
            if WRITE_AT + lending.written + size > COUNT_AT:
                return
            e.at = WRITE_AT + lending.written
        elif kind == "read":
            e.at = draw.randrange(READ_BYTES - size + 1)
        else:
            e.at = COUNT_AT
        if kind != "add" and size and draw.random() < 0.01:
            e.at, e.must_fail = LENT_BYTES - size + 1, True
        self.numbers += 1
        refused = not self._is_usable(link, lending) or not RIGHT[kind] & lending.access
        gone = lending.ended or any(end in link.asked for end in lending.ends)
        e.must_fail = bool(size) and (e.must_fail or refused or gone)
        e.data = draw.randbytes(size) if kind == "write" else lending.window.base[e.at :][:size]
        if kind == "write" and not e.must_fail:
            lending.written += size
        e.fence = draw.random() < 0.1
        lending.asked.append(e)
        link.asked.append(e)
        link.asker.post_send(self._request(link, lending, e, size))

    def _is_usable(self, link: Link, lending: Lending) -> bool:
        return lending.window.type is MwType.TYPE_1 or lending.owner is link

    def _request(self, link: Link, lending: Lending, e: Asked, size: int) -> hca.SendRequest:
        here = e.slot * SLOT
        local = link.mr[here : here + size]
        far = lending.remote
        remote = hca.RemoteMemory(far.addr + e.at, far.rkey, size)
        if e.kind == "write":
            link.buffer[here : here + size] = e.data
            return hca.Write(local, remote=remote, wr_id=e.number, fence=e.fence, signaled=True)
        link.buffer[here : here + size] = bytes(size)
        if e.kind == "read":
            return hca.Read(local, remote=remote, wr_id=e.number, fence=e.fence, signaled=True)
        return hca.FetchAdd(
            local, remote=remote, add=1, wr_id=e.number, fence=e.fence, signaled=True
        )

    # --- polling

    def poll(self) -> None:
        """Takes what completed, and compares."""
        for link in self.links:
            # What an answer says may have been true for a while: who lends knows first.
            for wc in self._polled(link.receives):
                self._received(link, wc)
            for wc in self._polled(link.cqs[1]):
                self._lent(link, wc)
            for wc in self._polled(link.cqs[0]):
                self._answered(link, wc)
        for device in {id(d): d for d in (pd.device for pd in self.links[0].pds)}.values():
            while (event := device.poll_async_event()) is not None:
                event.ack()

    def _polled(self, cq: hca.CQ) -> list[hca.WC]:
        wcs = cq.device.adapter.poll_cq(cq.handle, 4, hca.WC, progress=self.on_wire)
        self.done += len(wcs)
        return list(wcs)

    def _lent(self, link: Link, wc: hca.WC) -> None:
        number, kind, lending = link.local.popleft()
        assert number == wc.wr_id, f"{wc!r} in the place of {number}"
        assert lending is not None
        window = lending.window
        if wc.status is WcStatus.WR_FLUSH_ERR:
            assert link.broken or self._may_be_refused(link), f"{kind}: {wc!r} {wc.why}"
            if kind != "bind":
                lending.ends = [end for end in lending.ends if end.number != number]
            elif window.next is lending:
                window.next = None
                assert window.lending is not None
                old = window.lending
                old.ends = [end for end in old.ends if end.number != number]
            elif window.lending is lending:
                window.lending = None
            return
        assert wc.ok, f"{kind}: {wc!r} {wc.why}"
        if kind != "bind":
            self._ended(lending)
            return
        if window.next is lending:
            assert window.lending is not None
            self._ended(window.lending)
        lending.bound = True

    def _may_be_refused(self, link: Link) -> bool:
        return link.failed or any(self._may_fail(e) for e in link.asked)

    def _may_fail(self, e: Asked) -> bool:
        lending = e.lending
        if e.kind == "sendinv" or lending is None or not e.data:
            return False
        return e.must_fail or lending.may_fail(e)

    def _received(self, link: Link, wc: hca.WC) -> None:
        link.receiving -= 1
        if not wc.ok:
            assert wc.status is WcStatus.WR_FLUSH_ERR, f"{wc!r} {wc.why}"
            assert link.broken or self._may_be_refused(link), f"{wc!r} {wc.why}"
            return
        e, data = link.expected.popleft()
        assert wc.byte_len == len(data), (wc, len(data))
        assert e.lending is not None
        assert wc.invalidated_rkey == e.lending.remote.rkey, (wc, e)
        self._ended(e.lending)

    def _answered(self, link: Link, wc: hca.WC) -> None:
        e = link.asked.popleft()
        assert e.number == wc.wr_id, f"{wc!r} in the place of {e}"
        if not wc.ok:
            self._not_done(link, e, wc)
            return
        assert not link.failed, f"{wc!r} behind one that was refused"
        assert not e.must_fail, f"{e} succeeded"
        here = e.slot * SLOT
        got = link.buffer[here : here + len(e.data)]
        if e.kind == "read":
            assert got == e.data, f"{e} was shown something else"
        elif e.kind == "add":
            self._counted(e, int.from_bytes(got, "little"))
        e.done = True

    def _counted(self, e: Asked, before: int) -> None:
        assert e.lending is not None
        adds = [one for one in e.lending.asked if one.kind == "add" and not one.must_fail]
        place = (before - int.from_bytes(e.data, "little")) % (1 << 64)
        assert place < len(adds), f"{e} counted from {before:#x}"
        assert place not in [one.at - COUNT_AT for one in adds if one.done], f"{e} as another"
        e.at = COUNT_AT + place

    def _not_done(self, link: Link, e: Asked, wc: hca.WC) -> None:
        if link.failed or link.broken:
            assert wc.status is WcStatus.WR_FLUSH_ERR or link.broken, f"{e}: {wc!r}"
            return
        # Whose refusal was lost is answered no more.
        lost = self.lossy and wc.status is WcStatus.RETRY_EXC_ERR
        assert wc.status is WcStatus.REM_ACCESS_ERR or lost, f"{e}: {wc!r} {wc.why}"
        # With a refusal lost, the request that met it may be behind this one.
        refused = self._may_fail(e) or (lost and any(map(self._may_fail, link.asked)))
        assert refused, f"{e}: {wc!r} {wc.why}"
        link.failed = True
        self.refused += 1

    def feed(self, link: Link) -> None:
        """Receives for the messages that are to come."""
        while link.receiving < len(link.expected) and not link.broken:
            link.lender.post_recv(hca.Recv(self.landing[:], wr_id=0))
            link.receiving += 1

    def _ended(self, lending: Lending) -> None:
        """From now on nobody reaches it."""
        if lending.ended:
            return
        window = lending.window
        window.look()
        lending.ended, window.lending, window.next = True, window.next, None
        self.over.append(lending)
        window.fill(self.draw)
