"""Completion channels: descriptors that tell which armed queues got a completion."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from softhca._adapter import CompletionChannel
from softhca.verbs.errors import VerbsError
from softhca.verbs.events import until_readable, wait_for_event
from softhca.verbs.lifetime import VerbsObject
from softhca.verbs.waiting import checkpoint, wait_readable

if TYPE_CHECKING:
    from softhca.verbs.cq import CQ
    from softhca.verbs.device import Device


class CompChannel(VerbsObject):
    """A completion channel (struct ibv_comp_channel). `device.create_comp_channel()` makes it.

    Queues that are made with it tell their events here: `device.create_cq(64, channel=channel)`.
    A queue that is made without a channel gets one of its own when it is first asked for:
    `cq.channel`.
    """

    __slots__ = ("_channel", "_number", "device", "is_own")

    kind = "channel"

    def __init__(self, device: Device, is_own: bool = False) -> None:
        device._demand_ours()
        hca = device._hca
        self._channel: CompletionChannel
        self._channel, self._number = hca.create_channel()
        self.device: Device = device
        self.is_own: bool = is_own  # Of one queue, which made it and closes it.
        super().__init__(hca, *(() if is_own else (device,)))

    def _destroy(self) -> None:
        self._hca.remove_sink(self._number)
        self._channel.close()  # Wakes who waits.

    def fileno(self) -> int:
        """The descriptor, readable while an event waits, for select, poll and epoll.

        Raises:
            VerbsError: EINVAL, if the channel is closed.
        """
        self._demand_ours()
        return self._channel.fd

    def poll_event(self) -> CQ | None:
        """Takes the oldest event and returns its queue; None if there is none.

        As with `get_event`, it must be acknowledged: `cq.ack_events(1)`.

        Raises:
            VerbsError: EINVAL, if the channel is closed; ECANCELED, if it was closed meanwhile;
                EIO, in a child of fork().
        """
        self._demand_ours()
        return self._take()

    def _take(self) -> CQ | None:
        while handle := self._channel.pop():
            cq = self.device._cqs.get(handle)
            if cq is not None and cq._completion_acks.taken():
                return cq
        if self._channel.closed:
            raise VerbsError(errno.ECANCELED, self.kind, None, "was closed while it was waited for")
        return None

    def get_event(self, timeout: float | None = None) -> CQ:
        """Waits for an event, takes it, and returns its queue (ibv_get_cq_event).

        The queue is not armed any more. Every event that was taken must be acknowledged with
        `cq.ack_events()`, at any time before the queue is closed; many at once cost less.

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            TimeoutError: If none came in time.
            VerbsError: EINVAL, if the channel is closed; ECANCELED, if it is closed meanwhile;
                EOPNOTSUPP, on a simulated device without a fabric, where nothing happens while one
                waits.
        """
        cq = self.poll_event()
        if cq is not None:
            return cq
        world = self.device._world
        if world is not None:
            return world.wait(self._take, timeout, f"a completion event of {self.device.name}")
        wait = until_readable(-1) if self._hca.is_simulated else self._wait
        return wait_for_event(self._take, timeout, wait)

    def _wait(self, seconds: float) -> None:
        if not self._hca.wait_for(self._channel, seconds):
            until_readable(self._channel.fd)(seconds)

    async def wait_event(self) -> CQ:
        """The same in a task of asyncio or trio; no event is lost when it is cancelled.

        Raises:
            VerbsError: As for `get_event`; EDEADLK, on a device of a fabric in an event loop that
                `Fabric.run_async` or `run_trio` does not run.
        """
        await checkpoint()
        cq = self.poll_event()
        while cq is None:
            await wait_readable(self._channel.fd, self.device._world)
            cq = self._take()
        return cq

    def __repr__(self) -> str:
        return f"<CompChannel {self._number}>"
