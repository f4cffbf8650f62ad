"""Completion channels: events, their order and acknowledgement, descriptors, closing, fork."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import softhca as hca
from softhca import NotifyFlags, Recv, Send, VerbsError
from softhca.testing import open_simulated

from .hosts import Host, Pair
from .tasks import Body

Run = Callable[[Body], Any]
NEXT, SOLICITED = NotifyFlags.NEXT_COMP, NotifyFlags.SOLICITED
REPORT = NotifyFlags.REPORT_MISSED_EVENTS


class Receiver:
    """A queue on a channel, and a peer that fills it."""

    def __init__(self, pair: Pair, channel: hca.CompChannel | None, cqe: int = 64) -> None:
        self._pair = pair
        self.cq = pair.a.keep(pair.a.device.create_cq(cqe, channel=channel))
        self.qp = pair.a.qp(send_cq=self.cq, recv_cq=self.cq, max_recv_wr=64)
        self.peer = pair.b.qp(max_send_wr=64)
        self.qp.connect(self.peer.info())
        self.peer.connect(self.qp.info())

    def receive(self, count: int = 1, *, solicited: bool = False) -> None:
        """Makes so many messages arrive."""
        self.qp.post_recv([Recv() for _ in range(count)])
        sends = [Send(solicited=solicited) for _ in range(count - 1)]
        self.peer.post_send([*sends, Send(solicited=solicited, signaled=True)])
        self._pair.completion(self._pair.b)

    def fail(self) -> None:
        """Flushes a receive."""
        self.qp.post_recv(Recv())
        self.qp.modify(qp_state=hca.QPState.ERR)


@pytest.fixture
def channel(simulated: Pair) -> hca.CompChannel:
    """A channel of the first host."""
    return simulated.a.keep(simulated.a.device.create_comp_channel())


@pytest.fixture
def receiver(simulated: Pair, channel: hca.CompChannel) -> Receiver:
    """A queue on it."""
    return Receiver(simulated, channel)


@pytest.fixture
def real() -> Iterator[Pair]:
    """Two hosts on loopback addresses."""
    with hca.open() as a, hca.open() as b:
        yield Pair(Host(a), Host(b), None)


def readable(fd: int) -> bool:
    """Whether a descriptor is readable now."""
    return bool(select.select([fd], [], [], 0)[0])


def events(channel: hca.CompChannel) -> list[hca.CQ]:
    """Takes and acknowledges all events that wait."""
    taken = []
    while (cq := channel.poll_event()) is not None:
        cq.ack_events()
        taken.append(cq)
    return taken


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


# --- waiting


def test_a_thread_waits(real: Pair) -> None:
    channel = real.a.keep(real.a.device.create_comp_channel())
    receiver = Receiver(real, channel)
    for _ in range(20):
        receiver.cq.req_notify()
        sender = threading.Thread(target=receiver.receive)
        sender.start()
        assert channel.get_event() is receiver.cq
        receiver.cq.ack_events()
        sender.join()
    assert len(receiver.cq.poll(64)) == 20


def test_a_wait_can_end_in_time(real: Pair) -> None:
    channel = real.a.keep(real.a.device.create_comp_channel())
    for timeout in (0, 0.01, -5):
        with pytest.raises(TimeoutError):
            channel.get_event(timeout)
    with pytest.raises(VerbsError, match="timeout"):
        channel.get_event(float("nan"))


def test_nobody_waits_for_a_simulation(receiver: Receiver, channel: hca.CompChannel) -> None:
    with pytest.raises(VerbsError, match="is simulated") as raised:
        channel.get_event()
    assert raised.value.errno == errno.EOPNOTSUPP
    receiver.cq.req_notify()
    receiver.receive()
    assert channel.get_event() is receiver.cq  # It need not wait.
    receiver.cq.ack_events()


def test_a_channel_closed_under_a_thread_wakes_it(real: Pair) -> None:
    for _ in range(20):
        channel = real.a.device.create_comp_channel()
        errnos: list[int | None] = []

        def wait(channel: hca.CompChannel = channel, errnos: list[int | None] = errnos) -> None:
            try:
                channel.get_event()
            except VerbsError as error:
                errnos.append(error.errno)

        waiters = [threading.Thread(target=wait) for _ in range(3)]
        for waiter in waiters:
            waiter.start()
        channel.close()
        for waiter in waiters:
            waiter.join(60)
        assert len(errnos) == 3
        assert set(errnos) <= {errno.ECANCELED, errno.EINVAL}  # The latter if it came too late.


def test_a_device_closed_under_a_thread_wakes_it() -> None:
    with hca.open() as device:
        channel = device.create_comp_channel()
        errnos: list[int | None] = []

        def wait() -> None:
            try:
                channel.get_event()
            except VerbsError as error:
                errnos.append(error.errno)

        waiter = threading.Thread(target=wait)
        waiter.start()
    waiter.join(60)
    assert errnos in ([errno.ECANCELED], [errno.EINVAL])


def test_a_channel_closed_under_a_task_wakes_it(real: Pair, run_anyio: Run) -> None:
    anyio = pytest.importorskip("anyio")

    async def body() -> None:
        channel = real.a.device.create_comp_channel()

        async def wait() -> None:
            with pytest.raises(VerbsError, match="closed while it was waited for") as raised:
                await channel.wait_event()
            assert raised.value.errno == errno.ECANCELED

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            channel.close()

    run_anyio(body)


def test_a_task_waits_and_loses_nothing_when_cancelled(
    receiver: Receiver, channel: hca.CompChannel, run_anyio: Run
) -> None:
    anyio = pytest.importorskip("anyio")

    async def body() -> None:
        receiver.cq.req_notify()
        async with anyio.create_task_group() as group:
            group.start_soon(channel.wait_event)
            await anyio.wait_all_tasks_blocked()
            receiver.receive()
            group.cancel_scope.cancel()
        assert await channel.wait_event() is receiver.cq
        receiver.cq.ack_events()

    run_anyio(body)


@pytest.mark.parametrize("how", ["select", "poll", "epoll"])
def test_the_descriptor_is_a_descriptor(
    receiver: Receiver, channel: hca.CompChannel, how: str
) -> None:
    def is_ready() -> bool:
        if how == "select":
            return readable(channel.fileno())
        if how == "poll":
            poller = select.poll()
            poller.register(channel, select.POLLIN)
            return bool(poller.poll(0))
        with select.epoll() as epoll:
            epoll.register(channel, select.EPOLLIN)
            return bool(epoll.poll(0))

    assert not is_ready()
    receiver.cq.req_notify()
    receiver.receive()
    assert is_ready()
    assert is_ready()  # Level-triggered: until the event is taken.
    assert events(channel) == [receiver.cq]
    assert not is_ready()


def test_an_edge_for_every_first_event(receiver: Receiver, channel: hca.CompChannel) -> None:
    with select.epoll() as epoll:
        epoll.register(channel, select.EPOLLIN | select.EPOLLET)
        for _ in range(3):
            assert epoll.poll(0) == []
            receiver.cq.req_notify()
            receiver.receive()
            assert len(epoll.poll(0)) == 1
            assert events(channel) == [receiver.cq]


def test_a_loop_reads_the_descriptor(real: Pair) -> None:
    channel = real.a.keep(real.a.device.create_comp_channel())
    receiver = Receiver(real, channel)

    async def body() -> None:
        loop = asyncio.get_running_loop()
        told: asyncio.Queue[hca.CQ] = asyncio.Queue()

        def on_event() -> None:
            for cq in events(channel):
                told.put_nowait(cq)

        loop.add_reader(channel.fileno(), on_event)
        for _ in range(10):
            receiver.cq.req_notify()
            await loop.run_in_executor(None, receiver.receive)
            assert await asyncio.wait_for(told.get(), 60) is receiver.cq
        loop.remove_reader(channel.fileno())

    asyncio.run(body())


# --- fork


def test_a_child_takes_nothing_from_its_parent(
    receiver: Receiver, channel: hca.CompChannel
) -> None:
    """The descriptor is one for both: a child that reads it would put its parent to sleep."""
    receiver.cq.req_notify()
    receiver.receive()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            refused = []
            for call in (channel.poll_event, channel.get_event, channel.fileno):
                try:
                    call()
                except VerbsError as error:
                    refused.append(error.errno)
            status = 0 if refused == [errno.EIO] * 3 else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert readable(channel.fileno())
    assert events(channel) == [receiver.cq]


def test_leaving_a_device_closes_its_channels() -> None:
    with open_simulated("10.0.0.7") as device:
        channel = device.create_comp_channel()
        cq = device.create_cq(4, channel=channel)
        other = device.create_cq(4)
        own = other.channel
    assert channel.closed
    assert cq.closed
    assert other.closed
    assert own.closed
