"""Asynchronous events of a device that has two descriptors for them: prints what each is told.

What is made may name one of them (UVERBS_ATTR_CREATE_QP_EVENT_FD); what names none is told of at
the first. An event of a queue pair comes once it will take no more from its shared queue.
"""

from __future__ import annotations

import fcntl
import os
import select

from command_fuzz import DRIVER_RXE, RDMA_VERBS_IOCTL
from wrong_commands import A_CQ, A_PD, AN_SRQ, Giver, attr

from softhca.uabi import structures as s

QP, ASYNC_EVENT = 4, 16
CREATE, ALLOC = 0, 0
INIT, ERR = 1, 6
PATIENCE_SECONDS = 20.0
STATE, FOR_INIT = 1, 1 | 1 << 3 | 1 << 4 | 1 << 5


class Maker:
    """Makes what this is about."""

    def __init__(self) -> None:
        self.giver = Giver()

    def ioctl(self, object_id: int, method_id: int, *attributes: dict[str, int]) -> int:
        """A method; returns what is written in place of its first attribute."""
        packed = b"".join(map(s.IOCTL_ATTRIBUTE.pack, attributes))
        wishes = {"object_id": object_id, "method_id": method_id, "driver_id": DRIVER_RXE}
        wishes |= {"length": 24 + len(packed), "num_attrs": len(attributes)}
        words = bytearray(s.IOCTL_HEADER.pack(wishes) + packed)
        fcntl.ioctl(self.giver.device, RDMA_VERBS_IOCTL, words)
        return int.from_bytes(words[32:40], "little")

    def events(self) -> int:
        """A descriptor of events, of which reading does not wait."""
        descriptor = self.ioctl(ASYNC_EVENT, ALLOC, attr(0, 0, 0))
        os.set_blocking(descriptor, False)
        return descriptor

    def queue_pair(self, user_handle: int, *more: dict[str, int]) -> int:
        """A queue pair that receives from the shared queue; returns its handle."""
        sizes = self.giver.arena.put(0, s.QP_CAP.pack({"max_send_wr": 4, "max_send_sge": 1}))
        answer = self.giver.answer
        return self.ioctl(
            QP,
            CREATE,
            attr(0, 0, 0),
            attr(2, 0, A_PD),
            attr(3, 0, AN_SRQ),
            attr(4, 0, A_CQ),
            attr(5, 0, A_CQ),
            attr(7, 8, user_handle),
            attr(8, s.QP_CAP.size, sizes),
            attr(9, 8, 2),
            attr(10, 4, 0),
            attr(13, s.QP_CAP.size, answer),
            attr(14, 4, answer + 64),
            attr(0x1001, 32, answer + 128),
            *more,
        )

    def end(self, handle: int) -> None:
        """Takes a queue pair to ERR."""
        for state, mask in ((INIT, FOR_INIT), (ERR, STATE)):
            fields = {"qp_handle": handle, "attr_mask": mask, "qp_state": state, "port_num": 1}
            self.giver.write(26, s.MODIFY_QP, fields)

    def destroy(self, handle: int) -> int:
        """Destroys a queue pair; returns how many of its events it is said to have told."""
        self.giver.write(27, s.DESTROY_QP, {"qp_handle": handle})
        at = self.giver.answer - self.giver.arena.start
        return int.from_bytes(self.giver.arena._pages[at : at + 4], "little")


def told(descriptor: int) -> list[int]:
    """What the events are about that have come; waits for the first."""
    select.select([descriptor], [], [], PATIENCE_SECONDS)
    elements = []
    while True:
        try:
            record = os.read(descriptor, s.ASYNC_EVENT.size)
        except BlockingIOError:
            return elements
        elements.append(s.ASYNC_EVENT.unpack(record).element)


def pipes() -> set[int]:
    """The descriptors of this process that are pipes."""
    names = os.listdir("/proc/self/fd")
    there = [name for name in names if os.path.lexists(f"/proc/self/fd/{name}")]
    return {int(name) for name in there if "pipe:" in os.readlink(f"/proc/self/fd/{name}")}


def main() -> None:
    """Makes two queue pairs, the younger of which names the younger descriptor."""
    before = pipes()
    maker = Maker()
    (first,) = pipes() - before  # Of the context, which the fuzzer has asked for.
    os.set_blocking(first, False)
    named = maker.events()
    pairs = [maker.queue_pair(10), maker.queue_pair(11, attr(12, 0, named))]
    unread = maker.queue_pair(12, attr(12, 0, named))
    for pair in pairs:
        maker.end(pair)
    at_first, at_named = told(first), told(named)
    maker.end(unread)
    os.close(named)
    # So many that those that nobody reads are let go of.
    for _ in range(40):
        os.close(maker.events())
    counts = [maker.destroy(pair) for pair in (*pairs, unread)]
    print(at_first, at_named, counts, flush=True)


if __name__ == "__main__":
    main()
