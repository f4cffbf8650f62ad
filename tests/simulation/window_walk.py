"""A random walk over windows that are taken back while others use them.

One host lends parts of its memory by windows of all types. The other one writes, reads and counts
through their keys, over several connections, while the windows are bound, bound anew, taken back by
either side, closed, or go with their queue pair. Who asks in time succeeds; who asks too late is
refused; and when a key has been taken back nobody reaches, or is shown, what is there from then on.

Run it with `python -m simulation.window_walk FIRST COUNT [LINK...]`, with tests/ on the path.
"""

from __future__ import annotations

import random

import softhca as hca
from softhca import Access, MwType, QPState
from softhca.testing import Fabric

from .real_hosts import RealHosts
from .state_ends import check
from .walk_command import main
from .window_asks import WindowAsks
from .window_ends import (
    ALL,
    DEPTH,
    LENT_BYTES,
    SLOT,
    Asked,
    Lending,
    Link,
)

PSNS = (0x200000, 0x3FFFF0, 0x7FFFFC, 0xBFFFF0, 0xFFFFF8)


class WindowWalk(WindowAsks):
    """One walk.

    Args:
        world: Where; its seed decides what is done.
        lossy: Whether refusals may be lost on their way.
    """

    def __init__(self, world: Fabric | RealHosts, lossy: bool) -> None:
        super().__init__(world, lossy)
        for link in self.links:
            self._join(link)

    def _join(self, link: Link) -> None:
        draw = self.draw
        link.psns.append(draw.choice([psn for psn in PSNS if psn not in link.psns]))
        mtu, depth = draw.choice([hca.Mtu.MTU_256, hca.Mtu.MTU_1024]), draw.choice([1, 4, 16])
        common = {
            "sq_psn": link.psns[-1],
            "rq_psn": link.psns[-1],
            "path_mtu": mtu,
            "min_rnr_timer": 1,
        }
        common |= {"timeout": self.timeout, "max_rd_atomic": depth, "max_dest_rd_atomic": depth}
        link.asker.connect(link.lender.info(), **common)
        link.lender.connect(link.asker.info(), **common)
        link.begin()

    # --- lending

    def bind(self, link: Link) -> None:
        """Lends a window's part: anew, or in the place of what is lent."""
        window, draw = self.draw.choice(self.windows), self.draw
        if len(link.local) >= DEPTH or link.broken or window.next is not None:
            return
        of_type_1 = window.type is MwType.TYPE_1
        lent = window.lending
        if lent is not None and not (of_type_1 and lent.bound and not lent.ends):
            return
        access = ALL if draw.random() < 0.7 else draw.choice(list(ALL))
        self.numbers += 1
        where = window.mr[window.start : window.start + LENT_BYTES]
        if of_type_1:
            if window.lending is not None and draw.random() < 0.3:
                link.lender.bind_mw(
                    window.mw, hca.BindInfo(None), wr_id=self.numbers, signaled=True
                )
                window.lending.ends.append(Asked(self.numbers, "unbind", None))
                link.local.append((self.numbers, "unbind", window.lending))
                return
            info = hca.BindInfo(window.mr, where.addr, where.length, access)
            far = link.lender.bind_mw(window.mw, info, wr_id=self.numbers, signaled=True)
            if window.lending is not None:
                window.lending.ends.append(Asked(self.numbers, "rebind", None))
        else:
            zero = draw.choice([Access(0), Access.ZERO_BASED])
            rkey = hca.inc_rkey(window.mw.rkey)
            wr = hca.BindMw(
                window.mw, where, access=access | zero, rkey=rkey, wr_id=self.numbers, signaled=True
            )
            link.lender.post_send(wr)
            far = wr.remote
        made = Lending(window, link, far, access)
        if window.lending is None:
            window.lending = made
        else:
            window.next = made
        link.local.append((self.numbers, "bind", made))

    def take_back(self, link: Link) -> None:
        """By the lender, or by the asker's last message."""
        draw = self.draw
        lent = [w.lending for w in self.windows if w.lending is not None and w.lending.bound]
        mine = [
            m for m in lent if m.owner is link and not m.ends and m.window.type is MwType.TYPE_2
        ]
        if not mine or link.failed or link.broken:
            return
        lending = draw.choice(mine)
        self.numbers += 1
        if draw.random() < 0.4 and len(link.asked) < DEPTH:
            size = draw.choice([0, 1, 300, 5000])
            slot = self._slot(link)
            if slot is None:
                return
            local = link.mr[slot * SLOT : slot * SLOT + size]
            e = Asked(self.numbers, "sendinv", lending, slot, data=draw.randbytes(size))
            link.buffer[slot * SLOT : slot * SLOT + size] = e.data
            e.fence = draw.random() < 0.5
            lending.ends.append(e)
            link.asked.append(e)
            link.expected.append((e, e.data))
            link.asker.post_send(
                hca.SendInv(
                    local, rkey=lending.remote.rkey, wr_id=e.number, signaled=True, fence=e.fence
                )
            )
        elif len(link.local) < DEPTH:
            lending.ends.append(Asked(self.numbers, "inv", None))
            link.local.append((self.numbers, "inv", lending))
            link.lender.post_send(
                hca.LocalInv(lending.remote.rkey, wr_id=self.numbers, signaled=True)
            )

    def close_window(self) -> None:
        """Closes one that is lent, or is being so; there is another at once."""
        window = self.draw.choice(self.windows)
        lent = window.lending
        if lent is not None and (not lent.bound or lent.ends):
            return
        window.mw.close()
        if lent is not None:
            lent.gone = True
            self._ended(lent)
        window.mw = window.pd.alloc_mw(window.type)

    # --- connections

    def again(self, link: Link) -> None:
        """Begins anew, be it while requests are under way; what was lent there ends."""
        link.broken = True
        for qp in self._shuffled(link):
            qp.modify(qp_state=QPState.ERR)
        for _ in range(20):
            self.poll()
        assert not link.asked, f"{link.asked} were not flushed"
        assert not link.local, f"{link.local} were not flushed"
        for qp in self._shuffled(link):
            qp.modify(qp_state=QPState.RESET)
        for window in self.windows:
            lending = window.lending
            if lending is None or window.type is MwType.TYPE_1 or lending.owner is not link:
                continue
            assert window.mw.state is hca.KeyState.FREE, "it outlives its connection"
            lending.gone = True
            self._ended(lending)
        if self.draw.random() < 0.3:
            for qp in self._shuffled(link):
                qp.close()
            link.make()
        self._join(link)

    def _shuffled(self, link: Link) -> list[hca.QP]:
        return self.draw.sample([link.asker, link.lender], 2)

    def settle(self) -> None:
        """Lets all finish."""
        for turn in range(3000):
            for link in self.links:
                if link.failed:
                    self.again(link)
                self.feed(link)
            self.poll()
            if not any(link.asked or link.local or link.failed for link in self.links):
                break
            self.world.run_for(20e-6 if turn < 200 else 1e-3)
        for link in self.links:
            assert not link.asked, f"{link.asked} have no end"
            assert not link.local, f"{link.local} have no end"

    def run(self, steps: int) -> None:
        draw = self.draw
        for step in range(steps):
            link = draw.choice(self.links)
            self._step(link, draw.random())
            if step % 8 == 0:
                self.look()
        self.settle()
        self.look()

    def look(self) -> None:
        """What is there, and what happened until now."""
        check(self.world)
        for window in self.windows:
            window.look()

    def _step(self, link: Link, what: float) -> None:
        if link.failed and what < 0.9:
            self.again(link)
        elif what < 0.45:
            self.ask(link)
        elif what < 0.60:
            self.bind(link)
        elif what < 0.66:
            self.take_back(link)
        elif what < 0.67:
            self.close_window()
        elif what < 0.75:
            self.feed(link)
        elif what < 0.995:
            self.poll()
            self.world.run_for(self.draw.choice([1e-6, 1e-5, 1e-4]))
        else:
            self.again(link)


def faults(fabric: Fabric) -> bool:
    """A bad network, more often than not."""
    draw = random.Random(fabric.seed ^ 0xBAD)
    lossy = False
    for word in ("drop", "duplicate", "reorder", "corrupt"):
        if draw.random() < 0.3:
            getattr(fabric.faults, word)(probability=draw.choice([0.01, 0.04]))
            lossy = True
    if draw.random() < 0.3:
        fabric.faults.delay((0, 30_000), probability=0.05)
        lossy = True  # What others overtake is asked for again, as if it were lost.
    return lossy


def walk(seed: int, steps: int = 250, link: str = "fabric") -> int:
    """Walks once; returns how many completions there were."""
    if link != "fabric":
        with RealHosts(seed, link) as hosts:
            here = WindowWalk(hosts, lossy=False)
            here.run(steps)
            return here.done
    with Fabric(seed, jitter_ns=3000 if seed % 3 == 0 else 0) as fabric:
        one = fabric.keep(WindowWalk(fabric, faults(fabric)))
        one.run(steps)
        return one.done


if __name__ == "__main__":
    main(walk)
