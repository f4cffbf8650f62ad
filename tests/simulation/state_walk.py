"""A random walk over what a program changes while packets are under way.

Both ends of a connection ask and answer. Meanwhile they are drained and go on, load other paths and
migrate, resize, moderate and arm completion queues, give regions other rights, lend windows that
the peer takes away, receive from shared queues with limits, and begin anew while packets of before
are still on the wire. Whatever a network loses, each message arrives once and in order, and each
request does what it is to do.

Run it with `python -m simulation.state_walk FIRST COUNT [LINK...]`, with tests/ on the path.
"""

from __future__ import annotations

import random

import softhca as hca
from softhca import Access, MigState, NotifyFlags, QPState, QPType
from softhca.testing import Fabric

from .real_hosts import RealHosts
from .state_asks import Asks
from .state_ends import CONNECTED, DEPTH, End, Host, check
from .walk_command import main


class StateWalk(Asks):
    """One walk.

    Args:
        world: Where; its seed decides what is done.
    """

    # --- what is changed meanwhile

    def pause(self, a: End) -> None:
        """To SQD, and some time later out of it."""
        if a.asks and not a.paused:
            self.poll()  # The event of the last time may not have been seen yet.
            a.drained, a.paused = 0, True
            a.qp.modify(qp_state=QPState.SQD, en_sqd_async_notify=True)

    def go_on(self, a: End, b: End) -> None:
        draw = self.draw
        if draw.random() < 0.7:
            self._drain(a, b)
            if draw.random() < 0.5 and a.kind is QPType.RC:
                timeout, timer = self.timeout + draw.choice([-1, 0, 1]), draw.choice([1, 3])
                a.qp.modify(
                    qp_state=QPState.SQD, timeout=timeout, max_rd_atomic=1, min_rnr_timer=timer
                )
        a.qp.modify(qp_state=QPState.RTS)
        a.paused = False

    def _drain(self, a: End, b: End) -> None:
        """Until the event comes; nothing begins after it."""
        for turn in range(600):
            self.feed(b)
            self.poll()
            if a.drained:
                break
            self.world.run_for(50e-6 if turn < 200 else 1e-3)
        assert a.drained, f"{a.qp!r} is not drained: {a.posted}"
        assert not a.qp.query().sq_draining
        for _ in range(DEPTH):
            self.poll()
        waiting = len(a.posted)
        self.world.run_for(1e-3)
        self.poll()
        assert len(a.posted) == waiting, "something began in SQD"

    def rearm(self, a: End, b: End) -> None:
        if a.kind not in CONNECTED or a.paused or b.paused:
            return
        for one, other in ((a, b), (b, a)):
            path = hca.AHAttr(dgid=other.host.device.gid, traffic_class=0x20)
            one.qp.modify(alt_ah_attr=path, alt_timeout=self.timeout, path_mig_state=MigState.REARM)

    def migrate(self, a: End) -> None:
        if a.kind in CONNECTED and not a.paused and a.qp.query().path_mig_state is MigState.ARMED:
            a.qp.modify(path_mig_state=MigState.MIGRATED)

    def tend(self, a: End) -> None:
        """Something about a completion queue, a shared queue or a region."""
        draw = self.draw
        queue = draw.choice([a.sends, a.host.receives])
        what = draw.randrange(7)
        if what < 3:
            queue.arm(draw.choice([NotifyFlags.NEXT_COMP] * 3 + [NotifyFlags.SOLICITED]))
        elif what == 3:
            queue.cq.resize(draw.choice([200, 256, 1000]))
        elif what == 4:
            queue.moderate(*draw.choice([(0, 0), (1, 0), (0, 20), (3, 20), (100, 1), (100, 20)]))
        elif what == 5:
            self._limit(a.host)
        elif not a.has_window():
            # Windows keep a region as it is.
            more = draw.choice([Access(0), Access.RELAXED_ORDERING])
            a.mr.rereg(access=a.mr.access & ~Access.RELAXED_ORDERING | more)

    def _limit(self, host: Host) -> None:
        srq = self.draw.choice([host.srq, host.xrc_srq])
        pool = host.pools[id(srq)]
        # What was reached until now is told of before.
        srq.modify(srq_limit=0)
        while (event := host.device.poll_async_event()) is not None:
            self._happened(event)
        pool.limit = self.draw.choice([0, 1, 3, 8])
        srq.modify(srq_limit=pool.limit)

    def again(self, pair: tuple[End, End]) -> None:
        """Both ends from RESET, or anew, while the last packets are still under way."""
        draw = self.draw
        fails = draw.random() < 0.5
        for end in pair if fails else ():
            end.flushing = True
            end.qp.modify(qp_state=QPState.ERR)
        # The RESET leaves what has completed by then.
        for _ in range(100):
            self.poll()
        for end in pair if fails else ():
            assert not any(e.signaled for e in end.posted), "all are flushed"
            assert end.shared or not end.pool.posted, "all receives are flushed"
        remake = draw.random() < 0.5
        # Both before anybody looks: who still asks is answered no more, and gives up in the end.
        for end in pair:
            if remake:
                end.close()
            else:
                end.qp.modify(qp_state=QPState.RESET)
        for _ in range(0 if remake else 100):
            self.poll()
        for end in pair:
            if not end.shared:
                end.pool.forget()
            if remake:
                end.make()
        self._join(*pair)

    # --- walking

    def settle(self) -> None:
        """Lets all finish."""
        for a, b in self.both_ways:
            if a.paused:
                self.go_on(a, b)
        for turn in range(3000):
            self.poll()
            if not any(end.awaits for end, _ in self.both_ways):
                break
            for end, _ in self.both_ways:
                if end.messages:
                    self.feed(end)
            self.world.run_for(20e-6 if turn < 200 else 1e-3)
        for end, _ in self.both_ways:
            assert not end.awaits, f"{end.qp!r} asked {end.posted}, and lacks {end.messages}"

    def run(self, steps: int) -> None:
        draw = self.draw
        for step in range(steps):
            if step % 16 == 0:
                check(self.world)
            if not self.pairs or (len(self.pairs) < 3 and draw.random() < 0.05):
                self.connect()
            a, b = draw.choice(self.both_ways)
            self._step(a, b, draw.random())
        self.settle()
        check(self.world)

    def _step(self, a: End, b: End, what: float) -> None:
        if what < 0.42:
            self.post(a, b)
        elif what < 0.60:
            self.feed(b)
        elif what < 0.80:
            self.poll()
            self.world.run_for(self.draw.choice([1e-6, 1e-5, 1e-4]))
        elif what < 0.84:
            self.go_on(a, b) if a.paused else self.pause(a)
        elif what < 0.87:
            self.lend(b)
        elif what < 0.89:
            self.rearm(a, b)
        elif what < 0.91:
            self.migrate(a)
        elif what < 0.985:
            self.tend(a)
        else:
            self.again((a, b))


def faults(fabric: Fabric) -> None:
    """A bad network."""
    draw = random.Random(fabric.seed ^ 0x57A7E)
    for word in ("drop", "duplicate", "reorder", "corrupt"):
        if draw.random() < 0.4:
            getattr(fabric.faults, word)(probability=draw.choice([0.01, 0.04]))
    if draw.random() < 0.3:
        fabric.faults.delay((0, 30_000), probability=0.05)


def walk(seed: int, steps: int = 200, link: str = "fabric") -> int:
    """Walks once; returns how many completions there were."""
    if link != "fabric":
        with RealHosts(seed, link) as hosts:
            here = StateWalk(hosts)
            here.run(steps)
            return here.done
    jitter_ns = 3000 if seed % 3 == 0 else 0
    ack_delay_ns = 2000 if seed % 5 < 2 else 0
    with Fabric(seed, jitter_ns=jitter_ns, ack_delay_ns=ack_delay_ns) as fabric:
        faults(fabric)
        one = fabric.keep(StateWalk(fabric))
        one.run(steps)
        return one.done


if __name__ == "__main__":
    main(walk)
