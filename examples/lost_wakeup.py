"""The lost wake-up, every time: a completion between the last poll and the arming of its queue.

Two simulated adapters, so that the interleaving is the same on every run. The message arrives right
after the consumer has found its queue empty, and before it asks for an event. One consumer sleeps
for ever; the others wait in ways that cannot lose it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import softhca as hca
from softhca import NotifyFlags
from softhca.testing import Wire, open_simulated

Arrive = Callable[[], None]


class Scene:
    """A consumer's adapter, and a peer that sends one message when told to."""

    def __init__(self, dev: hca.Device, peer: hca.Device, cq: hca.CQ) -> None:
        self.wire = Wire(dev, peer)
        self.cq = cq
        self.qp = dev.alloc_pd().create_qp(hca.QPType.RC, send_cq=cq, recv_cq=cq)
        peer_cq = peer.create_cq(16)
        self.peer = peer.alloc_pd().create_qp(hca.QPType.RC, send_cq=peer_cq, recv_cq=peer_cq)
        self.qp.connect(self.peer.info())
        self.peer.connect(self.qp.info())

    def message_arrives(self) -> None:
        """Completes the receive that was posted."""
        self.peer.post_send(hca.Send())
        self.wire.settle()


def careless(cq: hca.CQ, channel: hca.CompChannel, arrives: Arrive) -> str:
    """Poll until empty, ask for an event, sleep: the loop that many programs have."""
    assert cq.poll() == []
    arrives()
    cq.req_notify(NotifyFlags.NEXT_COMP)  # For what is added from now on.
    if channel.poll_event() is None:  # get_event() would sleep, and nobody would wake it.
        return f"sleeps for ever, with {len(cq.poll())} completion waiting"
    return "was woken"


def polls_again(cq: hca.CQ, channel: hca.CompChannel, arrives: Arrive) -> str:
    """The classic remedy: once armed, look again."""
    assert cq.poll() == []
    arrives()
    cq.req_notify(NotifyFlags.NEXT_COMP)
    return f"finds {len(cq.poll())} completion before it sleeps"


def asks_for_missed_events(cq: hca.CQ, channel: hca.CompChannel, arrives: Arrive) -> str:
    """The kernel's remedy: arming says whether looking again is worth while."""
    assert cq.poll() == []
    arrives()
    if cq.req_notify(NotifyFlags.NEXT_COMP | NotifyFlags.REPORT_MISSED_EVENTS) > 0:
        return f"is told to poll again, and finds {len(cq.poll())} completion"
    return "was told that nothing was missed"


def with_a_channel(consumer: Callable[[hca.CQ, hca.CompChannel, Arrive], str]) -> None:
    """Runs a consumer that arms its queue itself."""
    with open_simulated("10.0.0.1") as dev, open_simulated("10.0.0.2") as peer:
        channel = dev.create_comp_channel()
        cq = dev.create_cq(16, channel=channel)
        scene = Scene(dev, peer, cq)
        scene.qp.post_recv(hca.Recv())
        print(f"{consumer.__name__}: {consumer(cq, channel, scene.message_arrives)}")


def with_callbacks() -> None:
    """The core polls and arms; the second message arrives between its last poll and its arming."""
    with open_simulated("10.0.0.1") as dev, open_simulated("10.0.0.2") as peer:
        cq = dev.alloc_cq(16)
        scene = Scene(dev, peer, cq)
        seen: list[int] = []

        def first(cq: hca.CQ, wc: hca.WC) -> None:
            seen.append(wc.wr_id)
            scene.message_arrives()  # The batch was polled; the queue is armed when we return.

        def second(cq: hca.CQ, wc: hca.WC) -> None:
            seen.append(wc.wr_id)

        scene.qp.post_recv(hca.Recv(wr_id=1, cqe=hca.Cqe(first)))
        scene.qp.post_recv(hca.Recv(wr_id=2, cqe=hca.Cqe(second)))
        scene.message_arrives()
        print(f"callbacks: were called for messages {seen}")


def with_tasks() -> None:
    """A task awaits the next completion; whoever polls and arms for it is not its business."""
    with open_simulated("10.0.0.1") as dev, open_simulated("10.0.0.2") as peer:
        cq = dev.create_cq(16)
        scene = Scene(dev, peer, cq)

        async def consume() -> None:
            waiting = asyncio.ensure_future(scene.qp.recv(wr_id=7))
            await asyncio.sleep(0)
            scene.message_arrives()
            print(f"tasks: await qp.recv() returns message {(await waiting).wr_id}")

        asyncio.run(consume())


if __name__ == "__main__":
    for way in (careless, polls_again, asks_for_missed_events):
        with_a_channel(way)
    with_callbacks()
    with_tasks()
