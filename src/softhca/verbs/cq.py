"""Completion queues."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from softhca import _adapter
from softhca.completion.awaiting import Awaited, Dispatcher
from softhca.completion.cqe import Cqe, tell_forgotten
from softhca.verbs.acknowledgement import Acknowledgement
from softhca.verbs.checks import unsigned
from softhca.verbs.comp_channel import CompChannel
from softhca.verbs.enums import NotifyFlags
from softhca.verbs.errors import VerbsError
from softhca.verbs.lifetime import VerbsObject, alive, made_once
from softhca.verbs.records import CompletionBuffer
from softhca.verbs.wc import WC

if TYPE_CHECKING:
    from softhca.verbs.callback_cq import CallbackCQ
    from softhca.verbs.device import Device
    from softhca.verbs.records import Records


class CQ(VerbsObject):
    """A completion queue (struct ibv_cq). `device.create_cq()` makes it.

    Tasks of asyncio and trio take its completions with `async for wc in cq` or `await cq.next()`;
    those of awaited work requests go to whoever awaits them.

    Attributes:
        device: The device.
        comp_vector: The completion vector it was made for.
        context: What the program wants to find with it; nobody else looks at it.
    """

    __slots__ = (
        "_async_acks",
        "_attached",
        "_channel",
        "_completion_acks",
        "_dispatcher",
        "_handle",
        "_vanished",
        "comp_vector",
        "context",
        "device",
    )

    kind = "cq"
    _wc_class = WC

    def __init__(
        self,
        device: Device,
        cqe: int,
        *,
        channel: CompChannel | None = None,
        comp_vector: int = 0,
        context: object = None,
        timestamps: bool = True,
        shared: bool = False,
    ) -> None:
        hca = device._hca
        # A queue that users share is the device's own, and does not keep it open.
        parents: list[VerbsObject] = [] if shared else [device]
        if channel is not None:
            parents.append(alive("channel", channel, CompChannel, hca))
        self.comp_vector: int = unsigned(
            "comp_vector", comp_vector, 32, most=device.num_comp_vectors - 1
        )
        self._async_acks = Acknowledgement()
        self._completion_acks = Acknowledgement()
        self._channel = channel
        self._attached = 0
        self._vanished: list[Cqe] = []
        self._dispatcher: Dispatcher | None = None
        self.context: object = context
        self._handle: int = hca.create_cq(unsigned("cqe", cqe, 32), bool(timestamps))
        self.device: Device = device
        super().__init__(hca, *parents)
        device._cqs[self._handle] = self

    @property
    def handle(self) -> int:
        """Number of the queue within its device."""
        return self._handle

    def _await_acknowledgement(self) -> None:
        self._async_acks.wait_until_none(self.kind, self.device._world)
        self._completion_acks.wait_until_none(self.kind, self.device._world)

    def _take_events_again(self) -> None:
        self._async_acks.take_again()
        self._completion_acks.take_again()

    def _destroy(self) -> None:
        self._vanished = self._hca.destroy_cq(self._handle)
        self.device._cqs.pop(self._handle, None)
        if self._dispatcher is not None:
            self._dispatcher.close()
            self._dispatcher = None
        if self._channel is not None:
            self._channel._channel.forget(self._handle)
            if self._channel.is_own:
                self._channel._close_now()

    def _aftermath(self) -> None:
        vanished, self._vanished = self._vanished, []
        tell_forgotten(vanished)

    @property
    def channel(self) -> CompChannel:
        """The channel that its events go to; one of its own, if it was made without."""
        if self._channel is None:
            if self._closed:
                raise VerbsError(errno.EINVAL, self.kind, None, "is closed")
            return made_once(
                self,
                "_channel",
                lambda: CompChannel(self.device, is_own=True),
                CompChannel._close_now,
            )
        return self._channel

    @property
    def cqe(self) -> int:
        """Completions that fit; one more is an overflow, which stops every queue pair of the CQ."""
        return self._hca.cq_capacity(self._handle)

    def poll(self, max_entries: int = 16) -> list[WC]:
        """Takes up to `max_entries` completions, the oldest first; an empty list if there are none.

        A poll that finds nothing makes progress first: it fetches packets and sends answers.
        Completions of work requests that tasks await go to them and are not in the list.

        Raises:
            VerbsError: EINVAL, if `max_entries` is negative or beyond 64 bits.
        """
        count = unsigned("max_entries", max_entries, 64)
        if self._dispatcher is not None:
            return self._poll_beside_tasks(self._dispatcher, count)
        return self._hca.poll_cq(self._handle, count, WC)

    def _poll_beside_tasks(self, dispatcher: Dispatcher, max_entries: int) -> list[WC]:
        wcs = dispatcher.take_unclaimed(max_entries)
        return wcs + self._hca.poll_cq(self._handle, max_entries - len(wcs), WC)

    def poll_one(self) -> WC | None:
        """Takes the oldest completion; None if there is none, after progress as in `poll`."""
        if self._dispatcher is not None:
            wcs = self._poll_beside_tasks(self._dispatcher, 1)
            return wcs[0] if wcs else None
        return self._hca.poll_one(self._handle, WC)

    def poll_into(self, buffer: CompletionBuffer | Records) -> int:
        """Takes completions into records, as many as fit, the oldest first.

        No object is made for them. Their callbacks (`cqe`), if they have any, are let go.

        Args:
            buffer: A `CompletionBuffer`, which is fastest; or a writable array of `WC_DTYPE`, or
                its bytes.

        Returns:
            How many records were filled, from the first on; those behind are as they were.

        Raises:
            TypeError: If it is no buffer, such as the number of completions that `poll` takes.
            VerbsError: EINVAL, if the buffer is read-only, or no array of records.
        """
        if isinstance(buffer, CompletionBuffer):
            into = buffer
        else:
            into = CompletionBuffer.over("buffer", buffer)
        if self._dispatcher is None:
            return self._hca.poll_into(self._handle, into)
        wcs = self._poll_beside_tasks(self._dispatcher, len(into))
        for index, wc in enumerate(wcs):
            _adapter.store_completion(wc, into, index)
        return len(wcs)

    def req_notify(self, flags: int = NotifyFlags.NEXT_COMP) -> int:
        """Arms the queue for one event at the next completion that is added (ib_req_notify_cq).

        Completions that wait already raise no event: poll once more after arming, or ask with
        REPORT_MISSED_EVENTS whether that is needed. The event comes through `channel`. Arming for
        any completion after arming for solicited ones upgrades; the other way round changes
        nothing. Completions in error count as solicited.

        Args:
            flags: One of NEXT_COMP and SOLICITED, with REPORT_MISSED_EVENTS if wanted.

        Returns:
            1, with REPORT_MISSED_EVENTS, if completions may wait without an event to come: poll
            again. 0 otherwise: with the flag, whatever is added since the last poll raises one.

        Raises:
            VerbsError: EINVAL, for other flags; EBUSY, while tasks await the queue; EIO, if it has
                overflowed and what it held was polled: nothing would ever come.
        """
        self._attach()
        missed = self._hca.req_notify_cq(self._handle, unsigned("flags", flags, 32))
        dispatcher = self._dispatcher
        if dispatcher and dispatcher.has_unclaimed and flags & NotifyFlags.REPORT_MISSED_EVENTS:
            return 1
        return missed

    def _attach(self) -> None:
        dispatcher = self._dispatcher
        if dispatcher is not None and dispatcher.wanted:
            raise VerbsError(errno.EBUSY, self.kind, None, "is awaited by tasks, which arm it")
        number = self.channel._number
        if self._attached != number:
            self._hca.attach_cq(self._handle, number)
            self._attached = number

    def ack_events(self, nevents: int = 1) -> None:
        """Acknowledges events that were taken from a channel (ibv_ack_cq_events).

        Closing the queue waits for it.

        Args:
            nevents: How many.

        Raises:
            VerbsError: EINVAL, if more are acknowledged than were taken.
        """
        self._completion_acks.acknowledge(unsigned("nevents", nevents, 32))

    def modify(self, *, cq_count: int, cq_period: int) -> None:
        """Moderates events (ibv_modify_cq): one for many completions.

        An armed queue tells of successful completions when `cq_count` of them have come, or
        `cq_period` after the first, whichever is earlier. Of an error it tells at once.

        Args:
            cq_count: Completions, 0 to 65535; 0 waits for the period alone.
            cq_period: Microseconds, 0 to 65535; 0 moderates nothing.

        Raises:
            VerbsError: EINVAL, for values out of range, and for a count without a period, which
                could wait for ever.
        """
        count = unsigned("cq_count", cq_count, 16)
        self._hca.moderate_cq(self._handle, count, unsigned("cq_period", cq_period, 16) * 1000)

    def _with_callbacks(self) -> CallbackCQ | None:
        """The queue itself, if it calls back."""
        return None

    def _tasks(self) -> Dispatcher | None:
        """Who hands completions to tasks."""
        # A child of fork() that gave the queue to its own loop would take it from the parent's.
        self._demand_ours()
        if self._dispatcher is None:
            return made_once(self, "_dispatcher", lambda: Dispatcher(self), Dispatcher.close)
        return self._dispatcher

    async def next(self) -> WC:
        """Waits for a completion and takes it, in a task of asyncio or trio.

        Completions of awaited work requests go to whoever awaits them, not here. None is lost when
        the task is cancelled.

        Raises:
            VerbsError: EINVAL, for a queue with callbacks; ECANCELED, if it is closed meanwhile.
        """
        dispatcher = self._tasks()
        if dispatcher is None:
            raise VerbsError(errno.EINVAL, self.kind, None, "gives its completions to callbacks")
        return await dispatcher.next()

    def __aiter__(self) -> CQ:
        """The queue itself; it never ends."""
        return self

    async def __anext__(self) -> WC:
        """As `next`."""
        return await self.next()

    def resize(self, cqe: int) -> None:
        """Changes how many completions fit; those that wait stay, in order.

        Raises:
            VerbsError: EINVAL, if `cqe` is below what waits or above max_cqe.
        """
        self._hca.resize_cq(self._handle, unsigned("cqe", cqe, 32))

    def __repr__(self) -> str:
        return f"<CQ {self._handle}>"


_adapter.quicken(CQ)
_adapter.name_awaited(Awaited, WC)
