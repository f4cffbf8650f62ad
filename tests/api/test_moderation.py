"""Moderated events, in virtual time: by count, by period, and never for errors."""

from __future__ import annotations

import errno

import pytest

import softhca as hca
from softhca import NotifyFlags, PollContext, Recv, Send, VerbsError
from softhca.testing import Wire

from .hosts import Host, Pair

NEXT, SOLICITED = NotifyFlags.NEXT_COMP, NotifyFlags.SOLICITED
US = 1000


class Moderated:
    """An armed queue with moderation, and a peer that sends to it."""

    def __init__(
        self,
        pair: Pair,
        *,
        count: int,
        period_us: int,
        arming: int = NEXT,
        timestamps: bool = True,
    ) -> None:
        assert pair.wire is not None
        self.wire: Wire = pair.wire
        self.channel = pair.a.keep(pair.a.device.create_comp_channel())
        self.cq = pair.a.keep(
            pair.a.device.create_cq(256, channel=self.channel, timestamps=timestamps)
        )
        self.qp = pair.a.qp(send_cq=self.cq, recv_cq=self.cq, max_recv_wr=200)
        self.peer = pair.b.qp(max_send_wr=200)
        self.qp.connect(self.peer.info())
        self.peer.connect(self.qp.info())
        self.cq.modify(cq_count=count, cq_period=period_us)
        self.cq.req_notify(arming)

    def receive(self, count: int = 1, *, solicited: bool = False) -> None:
        """Completes so many receives, without waiting for a timer."""
        self.qp.post_recv([Recv() for _ in range(count)])
        self.peer.post_send([Send(solicited=solicited) for _ in range(count)])
        self.wire.settle()

    def events(self) -> int:
        """How many events there were."""
        count = 0
        while (cq := self.channel.poll_event()) is not None:
            assert cq is self.cq
            cq.ack_events()
            count += 1
        return count


def test_a_count_is_waited_for(simulated: Pair) -> None:
    queue = Moderated(simulated, count=16, period_us=60_000)
    queue.receive(15)
    assert queue.events() == 0
    queue.receive()
    assert queue.events() == 1
    # The next arming begins to count anew.
    queue.cq.req_notify(NEXT)
    queue.receive(15)
    assert queue.events() == 0
    queue.receive(20)
    assert queue.events() == 1
    assert len(queue.cq.poll(256)) == 51


def test_a_period_ends_the_wait(simulated: Pair) -> None:
    queue = Moderated(simulated, count=100, period_us=50)
    queue.wire.run_for(500 * US)
    assert queue.events() == 0  # It is counted from the first completion on.
    queue.receive()
    stamp_ns = queue.cq.poll()[0].timestamp_ns
    queue.wire.run_for(stamp_ns + 49 * US - queue.wire.now_ns)
    queue.receive(3)
    assert queue.events() == 0
    queue.wire.run_for(1 * US)
    assert queue.events() == 1
    queue.wire.run_for(500 * US)
    assert queue.events() == 0


def test_a_period_is_counted_without_timestamps(simulated: Pair) -> None:
    queue = Moderated(simulated, count=100, period_us=50, timestamps=False)
    queue.wire.run_for(500 * US)
    before_ns = queue.wire.now_ns
    queue.receive()
    after_ns = queue.wire.now_ns
    queue.wire.run_for(before_ns + 50 * US - 1 - after_ns)
    assert queue.events() == 0
    queue.wire.run_for(after_ns + 50 * US - queue.wire.now_ns)
    assert queue.events() == 1
    assert queue.cq.poll()[0].timestamp_ns == 0


def test_a_count_of_0_waits_for_the_period_alone(simulated: Pair) -> None:
    queue = Moderated(simulated, count=0, period_us=50)
    queue.receive(150)
    assert queue.events() == 0
    queue.wire.run_for(50 * US)
    assert queue.events() == 1


def test_a_count_of_1_tells_of_each(simulated: Pair) -> None:
    queue = Moderated(simulated, count=1, period_us=50)
    queue.receive()
    assert queue.events() == 1


def test_an_error_goes_at_once(simulated: Pair) -> None:
    queue = Moderated(simulated, count=100, period_us=1000)
    queue.receive(3)
    assert queue.events() == 0
    queue.qp.post_recv(Recv())
    queue.qp.modify(qp_state=hca.QPState.ERR)
    assert queue.events() == 1
    # What was held back went with it: nothing comes when the period ends.
    queue.cq.req_notify(NEXT)
    queue.wire.run_for(2000 * US)
    assert queue.events() == 0


def test_only_what_would_be_told_of_counts(simulated: Pair) -> None:
    queue = Moderated(simulated, count=2, period_us=1000, arming=SOLICITED)
    queue.receive(10)
    queue.wire.run_for(2000 * US)
    assert queue.events() == 0
    queue.receive(1, solicited=True)
    assert queue.events() == 0
    queue.receive(1, solicited=True)
    assert queue.events() == 1


def test_a_queue_that_is_not_armed_holds_nothing_back(simulated: Pair) -> None:
    queue = Moderated(simulated, count=2, period_us=50)
    queue.receive(2)
    assert queue.events() == 1
    queue.receive(10)
    queue.wire.run_for(500 * US)
    assert queue.events() == 0


@pytest.mark.parametrize("settings", [(50, 2000), (3, 2000), (0, 0), (1, 0), (100, 1)])
def test_changing_lets_go_of_what_is_held_back(simulated: Pair, settings: tuple[int, int]) -> None:
    queue = Moderated(simulated, count=100, period_us=1000)
    queue.receive(5)
    assert queue.events() == 0
    queue.cq.modify(cq_count=settings[0], cq_period=settings[1])
    assert queue.events() == 1
    queue.wire.run_for(5000 * US)
    assert queue.events() == 0


def test_moderation_is_switched_off(simulated: Pair) -> None:
    queue = Moderated(simulated, count=100, period_us=1000)
    queue.cq.modify(cq_count=0, cq_period=0)
    queue.receive()
    assert queue.events() == 1


@pytest.mark.parametrize(
    ("count", "period", "argument"),
    [(2, 0, "cq_period"), (65536, 1, "cq_count"), (-1, 1, "cq_count"), (1, 65536, "cq_period")],
)
def test_settings_that_make_no_sense_are_refused(
    simulated: Pair, count: int, period: int, argument: str
) -> None:
    queue = Moderated(simulated, count=3, period_us=50)
    with pytest.raises(VerbsError) as raised:
        queue.cq.modify(cq_count=count, cq_period=period)
    assert (raised.value.errno, raised.value.argument) == (errno.EINVAL, argument)
    queue.receive(2)
    assert queue.events() == 0  # The old settings hold.
    queue.receive(1)
    assert queue.events() == 1


def test_a_queue_that_goes_takes_its_period_with_it(simulated: Pair) -> None:
    queue = Moderated(simulated, count=100, period_us=50)
    queue.receive()
    queue.qp.close()
    queue.cq.close()
    # The next one may get its number, and not its event.
    other = simulated.a.device.create_cq(4, channel=queue.channel)
    other.req_notify(NEXT)
    queue.wire.run_for(500 * US)
    assert queue.events() == 0
    other.close()


def test_callbacks_come_in_bundles(simulated: Pair) -> None:
    wire = simulated.wire
    assert wire is not None
    with simulated.a.device.alloc_cq(64, poll_context=PollContext.SOFTIRQ) as cq:
        cq.modify(cq_count=8, cq_period=1000)
        near, far = simulated.a.qp(send_cq=cq, recv_cq=cq, max_recv_wr=64), simulated.b.qp()
        near.connect(far.info())
        far.connect(near.info())
        called: list[int] = []
        callback = hca.Cqe(lambda _, wc: called.append(wc.wr_id))
        near.post_recv([Recv(wr_id=number, cqe=callback) for number in range(7)])
        for _ in range(7):
            far.post_send(Send())
            wire.settle()
        while simulated.a.device.run_callbacks():
            pass
        assert called == []
        wire.run_for(1000 * US)
        while simulated.a.device.run_callbacks():
            pass
        assert called == list(range(7))
        near.close()


def test_a_period_ends_in_real_time() -> None:
    with hca.open() as a, hca.open() as b:
        pair = Pair(Host(a), Host(b), None)
        channel = a.create_comp_channel()
        cq = a.create_cq(16, channel=channel)
        qp, peer = pair.a.qp(send_cq=cq, recv_cq=cq), pair.b.qp()
        qp.connect(peer.info())
        peer.connect(qp.info())
        cq.modify(cq_count=10, cq_period=2000)
        for _ in range(3):
            cq.req_notify(NEXT)
            qp.post_recv(Recv())
            peer.post_send(Send())
            assert channel.get_event(60) is cq
            cq.ack_events()
            (wc,) = cq.poll()
            assert a.clock_ns - wc.timestamp_ns >= 2000 * US
