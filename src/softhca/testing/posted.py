"""Work requests under way, as a watch of memory knows them: which bytes they may still touch."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from softhca.verbs.enums import WrOpcode
from softhca.verbs.errors import VerbsError
from softhca.verbs.mr import MR, Sge
from softhca.verbs.wr import Recv, SendRequest

Place = tuple[int, int]  # Host and queue pair, or host and shared receive queue.

# What leaves comes out of their buffers.
SOURCES = frozenset(
    {
        WrOpcode.SEND,
        WrOpcode.SEND_WITH_IMM,
        WrOpcode.SEND_WITH_INV,
        WrOpcode.RDMA_WRITE,
        WrOpcode.RDMA_WRITE_WITH_IMM,
        WrOpcode.ATOMIC_WRITE,
    }
)
# What comes goes into their buffers.
LANDINGS = frozenset(
    {
        WrOpcode.RDMA_READ,
        WrOpcode.ATOMIC_CMP_AND_SWP,
        WrOpcode.ATOMIC_FETCH_AND_ADD,
        WrOpcode.MASKED_ATOMIC_CMP_AND_SWP,
        WrOpcode.MASKED_ATOMIC_FETCH_AND_ADD,
    }
)
# They change memory of the peer.
REMOTE_WRITES = frozenset(
    {
        WrOpcode.RDMA_WRITE,
        WrOpcode.RDMA_WRITE_WITH_IMM,
        WrOpcode.ATOMIC_WRITE,
        WrOpcode.ATOMIC_CMP_AND_SWP,
        WrOpcode.ATOMIC_FETCH_AND_ADD,
        WrOpcode.MASKED_ATOMIC_CMP_AND_SWP,
        WrOpcode.MASKED_ATOMIC_FETCH_AND_ADD,
    }
)
# They need memory of the peer, under the key that they name, until they have completed.
REMOTE = REMOTE_WRITES | {WrOpcode.RDMA_READ, WrOpcode.FLUSH}


@dataclass
class Buffer:
    """A buffer of a work request, and what it must hold until that is done.

    Attributes:
        view: The buffer.
        part: As the work request has it.
        expected: What it must hold.
        lands: What comes goes there; else what leaves is there.
        begin: Where it begins in this process; None if that is not known.
    """

    view: memoryview
    part: Any
    expected: bytearray
    lands: bool
    begin: int | None

    @property
    def has_changed(self) -> bool:
        """Whether it holds something else, as long as its region still holds it."""
        mr = self.part.mr if isinstance(self.part, Sge) else self.part
        return mr is not None and mr.obj is not None and self.view != self.expected

    def meets(self, begin: int, end: int) -> bool:
        """Whether it has bytes of a range of this process."""
        return self.begin is not None and self.begin < end and begin < self.begin + len(self.view)


@dataclass
class Posted:
    """A work request that was posted and has not completed.

    Attributes:
        wr: The work request; None for one that has no buffers.
        at_ns: When it was posted, in virtual time.
        buffers: Its buffers, as far as they are known.
        remote: Of what it does at the peer: host, and key.
        span: What it changes there, in this process: the first byte and the end; None if that is
            nothing, or not known.
        taker: Of a receive of a shared queue, the queue pair that has begun to fill it.
        flies: It completes when it has left, and changes memory of the peer later.
        has_left: It has completed so: its buffers are the program's again.
    """

    wr: Any
    at_ns: int
    buffers: list[Buffer] = field(default_factory=list)
    remote: tuple[int, int] | None = None
    span: tuple[int, int] | None = None
    taker: int = 0
    flies: bool = False
    has_left: bool = False

    def holds(self, handle: int) -> bool:
        """Whether one of its buffers is of the region with this handle."""
        parts = () if self.wr is None or self.has_left else self.wr._kept
        return any(mr is not None and mr.handle == handle for mr in map(region_of, parts))

    def lands_in(self, begin: int, end: int) -> bool:
        """Whether what comes to it may go into a range of this process."""
        return any(buffer.lands and buffer.meets(begin, end) for buffer in self.buffers)


def region_of(part: Any) -> MR | None:
    """The region that a buffer of a work request is of; None if it is of none."""
    return part if isinstance(part, MR) else part.mr if isinstance(part, Sge) else None


def requests_of(wrs: Any, wr_ids: Any = None) -> list[Any]:
    """The work requests of a call of `post_send`, or of `post_send_many`.

    Raises:
        VerbsError: EOPNOTSUPP, if they are records, which do not tell their memory from another's.
    """
    if isinstance(wrs, list | tuple):
        return list(wrs)
    if not isinstance(wrs, SendRequest | Recv):
        rule = "is an array of records: who watches memory must see work requests"
        raise VerbsError(errno.EOPNOTSUPP, "wrs", None, rule)
    return [wrs] * (len(wr_ids) if hasattr(wr_ids, "__len__") else 1)


class SharedReceives:
    """Receives of shared receive queues, which any of several queue pairs takes.

    They are taken in order, and complete in any: which one a completion is of is told by the bytes
    that came before it.
    """

    def __init__(self) -> None:
        self._queues: dict[Place, deque[Posted]] = {}
        # The receive that bytes of a packet went into.
        self._filled: tuple[int, Posted] | None = None

    def add(self, queue: Place, posted: Posted) -> None:
        """A receive was posted."""
        self._queues.setdefault(queue, deque()).append(posted)

    def all(self) -> Iterator[tuple[Place, Posted]]:
        """All that have not completed."""
        for queue, waiting in self._queues.items():
            for posted in waiting:
                yield queue, posted

    def destroyed(self, queue: Place) -> None:
        """A shared receive queue is gone, and what was posted to it."""
        self._queues.pop(queue, None)

    def landed(self, host: int, packet: int, begin: int, end: int) -> None:
        """A packet changed a range of this process."""
        for (at, _), posted in self.all():
            if at == host and posted.lands_in(begin, end):
                self._filled = (packet, posted)
                return

    def delivered(self, packet: int, qpn: int) -> None:
        """A packet went to a queue pair, which has by then taken what it was for."""
        if self._filled is not None and self._filled[0] == packet:
            self._filled[1].taker = qpn

    def completed(self, host: int, qpn: int, wr_id: int, packet: int) -> None:
        """A queue pair without receives of its own completed one."""
        alike = [
            (queue, posted)
            for queue, posted in self.all()
            if queue[0] == host and posted.wr.wr_id == wr_id and posted.taker in (0, qpn)
        ]
        filled = self._filled[1] if self._filled and self._filled[0] == packet != 0 else None
        # In this order: the one that the packet filled, one that it had begun to, the oldest.
        alike.sort(key=lambda one: (one[1] is not filled, one[1].taker != qpn))
        if alike:
            queue, posted = alike[0]
            self._queues[queue].remove(posted)

    def abandoned(self, host: int, qpn: int) -> None:
        """A queue pair was reset or destroyed: what it had taken never completes."""
        for (at, handle), waiting in self._queues.items():
            if at == host:
                kept = [posted for posted in waiting if posted.taker != qpn]
                self._queues[at, handle] = deque(kept)
