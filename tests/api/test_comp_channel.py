"""Completion channels: events, their order and acknowledgement, closing."""

from __future__ import annotations

import errno
import threading

import pytest

import softhca as hca
from softhca import NotifyFlags, VerbsError

from .hosts import Pair
from .receivers import NEXT, REPORT, SOLICITED, Receiver, events, readable

# --- arming


def test_one_event_for_each_arming(receiver: Receiver, channel: hca.CompChannel) -> None:
    receiver.receive()
    assert events(channel) == []  # Not armed: no event.
    for _ in range(3):
        assert receiver.cq.req_notify(NEXT) == 0
        assert not readable(channel.fileno())
        receiver.receive(3)
        assert readable(channel.fileno())
        assert events(channel) == [receiver.cq]
        assert not readable(channel.fileno())
        receiver.receive()
        assert events(channel) == []
    assert len(receiver.cq.poll(64)) == 13


def test_arming_twice_is_arming_once(receiver: Receiver, channel: hca.CompChannel) -> None:
    receiver.cq.req_notify(NEXT)
    receiver.cq.req_notify(NEXT)
    receiver.receive(2)
    assert events(channel) == [receiver.cq]


def test_solicited_waits_for_what_solicits(receiver: Receiver, channel: hca.CompChannel) -> None:
    receiver.cq.req_notify(SOLICITED)
    receiver.receive(5)
    assert events(channel) == []
    receiver.receive(solicited=True)
    assert events(channel) == [receiver.cq]


def test_arming_for_any_upgrades(receiver: Receiver, channel: hca.CompChannel) -> None:
    receiver.cq.req_notify(SOLICITED)
    receiver.cq.req_notify(NEXT)
    receiver.receive()
    assert events(channel) == [receiver.cq]


def test_arming_for_solicited_does_not_downgrade(
    receiver: Receiver, channel: hca.CompChannel
) -> None:
    receiver.cq.req_notify(NEXT)
    receiver.cq.req_notify(SOLICITED)
    receiver.receive()
    assert events(channel) == [receiver.cq]


@pytest.mark.parametrize("arming", [SOLICITED, NEXT])
def test_an_error_counts_as_solicited(
    receiver: Receiver, channel: hca.CompChannel, arming: NotifyFlags
) -> None:
    receiver.cq.req_notify(arming)
    receiver.fail()
    assert events(channel) == [receiver.cq]


@pytest.mark.parametrize("arming", [SOLICITED, NEXT])
def test_the_hint_says_what_waits(receiver: Receiver, arming: NotifyFlags) -> None:
    assert receiver.cq.req_notify(arming | REPORT) == 0
    receiver.receive()
    assert receiver.cq.req_notify(arming) == 0  # Who does not ask is not told.
    assert receiver.cq.req_notify(arming | REPORT) == 1
    receiver.cq.poll()
    assert receiver.cq.req_notify(arming | REPORT) == 0


@pytest.mark.parametrize("flags", [0, 3, 4, 7, 8, 10, 1 << 31])
def test_flags_that_say_nothing_are_refused(
    receiver: Receiver, channel: hca.CompChannel, flags: int
) -> None:
    with pytest.raises(VerbsError, match="flags") as raised:
        receiver.cq.req_notify(flags)
    assert raised.value.errno == errno.EINVAL
    receiver.receive()
    assert events(channel) == []  # Nothing was armed.


def test_many_queues_on_one_channel(simulated: Pair, channel: hca.CompChannel) -> None:
    receivers = [Receiver(simulated, channel) for _ in range(5)]
    for receiver in receivers:
        receiver.cq.req_notify(NEXT)
    for receiver in (receivers[3], receivers[0], receivers[4], receivers[3]):
        receiver.receive()
    assert events(channel) == [receivers[3].cq, receivers[0].cq, receivers[4].cq]
    # The others still are armed.
    receivers[2].receive()
    receivers[1].fail()
    assert events(channel) == [receivers[2].cq, receivers[1].cq]


def test_an_event_finds_the_context(simulated: Pair, channel: hca.CompChannel) -> None:
    receiver = Receiver(simulated, channel)
    receiver.cq.context = {"my": "connection"}
    receiver.cq.req_notify()
    receiver.receive()
    (cq,) = events(channel)
    assert cq is receiver.cq
    assert cq.context == {"my": "connection"}


def test_a_queue_without_a_channel_gets_its_own(simulated: Pair) -> None:
    receiver = Receiver(simulated, None)
    own = receiver.cq.channel
    assert receiver.cq.channel is own
    receiver.cq.req_notify()
    receiver.receive()
    assert events(own) == [receiver.cq]
    receiver.qp.close()
    receiver.cq.close()
    assert own.closed
    never_asked = simulated.a.device.create_cq(4)
    never_asked.close()
    with pytest.raises(VerbsError, match="cq: is closed"):
        _ = never_asked.channel


# --- acknowledging and closing


def test_events_of_a_queue_go_with_it(simulated: Pair, channel: hca.CompChannel) -> None:
    gone, stays = Receiver(simulated, channel), Receiver(simulated, channel)
    for receiver in (gone, stays):
        receiver.cq.req_notify()
        receiver.receive()
    gone.qp.close()
    gone.cq.close()
    assert events(channel) == [stays.cq]
    assert not readable(channel.fileno())


def test_more_is_not_acknowledged_than_was_taken(
    receiver: Receiver, channel: hca.CompChannel
) -> None:
    with pytest.raises(VerbsError, match=r"nevents=1: must be 0 to 0") as raised:
        receiver.cq.ack_events()
    assert raised.value.errno == errno.EINVAL
    for _ in range(3):
        receiver.cq.req_notify()
        receiver.receive()
        assert channel.poll_event() is receiver.cq
    with pytest.raises(VerbsError, match=r"nevents=4: must be 0 to 3"):
        receiver.cq.ack_events(4)
    receiver.cq.ack_events(1)
    receiver.cq.ack_events(2)
    receiver.qp.close()
    receiver.cq.close()


def test_closing_waits_for_the_acknowledgement_of_another_thread(
    receiver: Receiver, channel: hca.CompChannel
) -> None:
    receiver.cq.req_notify()
    receiver.receive()
    assert channel.poll_event() is receiver.cq
    receiver.qp.close()
    happened: list[str] = []

    def close() -> None:
        receiver.cq.close()
        happened.append("closed")

    closer = threading.Thread(target=close)
    closer.start()
    happened.append("acknowledged")
    receiver.cq.ack_events()
    closer.join(60)
    assert happened == ["acknowledged", "closed"]


def test_no_event_is_taken_of_a_queue_that_has_waited_for_them(
    receiver: Receiver, channel: hca.CompChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.cq.req_notify()
    receiver.receive()
    receiver.qp.close()
    wait = hca.CQ._await_acknowledgement
    taken: list[hca.CQ | None] = []

    def wait_and_take(cq: hca.CQ) -> None:
        wait(cq)
        taken.append(channel.poll_event())  # As another thread may, that waits there.

    monkeypatch.setattr(hca.CQ, "_await_acknowledgement", wait_and_take)
    receiver.cq.close()
    assert taken == [None]


def test_events_are_taken_again_of_a_queue_that_stays(
    simulated: Pair, receiver: Receiver, channel: hca.CompChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.qp.close()
    device = simulated.a.device
    wait = hca.CQ._await_acknowledgement

    def wait_and_make(cq: hca.CQ) -> None:
        wait(cq)
        simulated.a.qp(send_cq=cq, recv_cq=cq)  # As another thread may.

    monkeypatch.setattr(hca.CQ, "_await_acknowledgement", wait_and_make)
    with pytest.raises(VerbsError, match="is still used by"):
        receiver.cq.close()
    receiver.cq.req_notify()
    device.adapter.overflow_cq(receiver.cq.handle)
    assert channel.poll_event() is receiver.cq
    event = device.poll_async_event()
    assert event is not None
    assert event.element is receiver.cq


def test_closing_is_refused_if_nobody_will_acknowledge(
    receiver: Receiver, channel: hca.CompChannel
) -> None:
    receiver.cq.req_notify()
    receiver.receive()
    assert channel.poll_event() is receiver.cq
    receiver.qp.close()
    with pytest.raises(VerbsError, match="cq: 1 event of it was never acknowledged") as raised:
        receiver.cq.close()
    assert raised.value.errno == errno.EBUSY
    receiver.cq.ack_events()
    receiver.cq.close()


def test_a_channel_with_queues_is_busy(receiver: Receiver, channel: hca.CompChannel) -> None:
    with pytest.raises(VerbsError, match="channel: is still used by <CQ") as raised:
        channel.close()
    assert raised.value.errno == errno.EBUSY
    receiver.qp.close()
    receiver.cq.close()
    channel.close()
    channel.close()
    for call in (channel.poll_event, channel.fileno, channel.get_event):
        with pytest.raises(VerbsError, match="channel: is closed"):
            call()


def test_a_closed_or_foreign_channel_is_refused(simulated: Pair) -> None:
    closed = simulated.a.device.create_comp_channel()
    closed.close()
    with pytest.raises(VerbsError, match="channel: is closed"):
        simulated.a.device.create_cq(4, channel=closed)
    foreign = simulated.b.keep(simulated.b.device.create_comp_channel())
    with pytest.raises(VerbsError, match="channel: belongs to another device"):
        simulated.a.device.create_cq(4, channel=foreign)
    with pytest.raises(TypeError, match="channel must be CompChannel"):
        simulated.a.device.create_cq(4, channel="a channel")  # type: ignore[arg-type]


def test_completion_vectors_are_counted(device: hca.Device) -> None:
    assert device.num_comp_vectors >= 1
    for vector in range(device.num_comp_vectors):
        with device.create_cq(4, comp_vector=vector) as cq:
            assert cq.comp_vector == vector
    for vector in (device.num_comp_vectors, -1):
        with pytest.raises(VerbsError, match="comp_vector") as raised:
            device.create_cq(4, comp_vector=vector)
        assert raised.value.errno == errno.EINVAL
