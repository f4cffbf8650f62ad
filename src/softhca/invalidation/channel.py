"""The channel that notices of vanishing memory come through."""

from __future__ import annotations

import errno
import mmap
from typing import TYPE_CHECKING

from softhca import _adapter
from softhca.invalidation.events import InvalidationEvent, InvalidationKind
from softhca.verbs.checks import unsigned
from softhca.verbs.errors import VerbsError
from softhca.verbs.events import until_readable, wait_for_event
from softhca.verbs.lifetime import VerbsObject
from softhca.verbs.waiting import checkpoint, wait_readable

if TYPE_CHECKING:
    from softhca.verbs.device import Device

_PAGE_BYTES = 4096
_KINDS = {int(kind): kind for kind in InvalidationKind}


class InvalidationChannel(VerbsObject):
    """Where notices of regions gather. `device.create_invalidation_channel()` makes it.

    A region asks for notices when it is registered: `pd.reg_mr(obj, invalidation=channel,
    cookie=n)`. When the mapping behind it changes, the generation changes before the call that
    changed it returns, and `read()` gives the event from then on. Regions of all devices of a
    process may share a channel. Closing it refuses nothing: its regions stay watched, and go on
    counting.

    The interface is the one that the kernel's `ummunotify` and the patches for invalidation of
    uverbs regions proposed; the truth comes from ioctl_userfaultfd(2).

    Attributes:
        page: The mapped page as numbers of 64 bits, of which the first is the generation. To look
            at it is one load: `channel.page[0] != seen`.
    """

    __slots__ = ("_mapping", "_native", "page")

    kind = "invalidation_channel"

    def __init__(self, device: Device) -> None:
        device._demand_ours()
        # A simulated adapter has a way of its own, for faults to stand in.
        way = getattr(device._hca, "open_invalidation_channel", None)
        native = _adapter.InvalidationChannel.open() if way is None else way()
        self._native: _adapter.InvalidationChannel = native
        try:
            self._mapping = mmap.mmap(
                self._native.generation_fd, _PAGE_BYTES, mmap.MAP_SHARED, mmap.PROT_READ
            )
        except OSError as failure:
            rule = "no descriptor or memory is left to map its page"
            raise VerbsError(failure.errno or errno.ENOMEM, self.kind, None, rule) from failure
        self.page: memoryview[int] = memoryview(self._mapping).cast("Q")
        super().__init__(device._hca, device)

    def _destroy(self) -> None:
        self._native.shut()

    @property
    def generation(self) -> int:
        """A number that changes whenever there may be something to read.

        It may also change when there is nothing: for a notice of another channel of this process.
        """
        return self.page[0]

    @property
    def generation_fd(self) -> int:
        """A descriptor of the page, to be mapped shared and read-only by C or another process.

        The first eight bytes of its 4096 are the generation, in the machine's order.
        """
        return self._native.generation_fd

    def fileno(self) -> int:
        """A descriptor that is readable while there are events, for poll, select and asyncio.

        Events are taken by `read()`; the descriptor itself is not to be read.

        Raises:
            VerbsError: EINVAL, if the channel is closed; EIO, in a child of fork().
        """
        self._demand_ours()
        return self._native.fd

    def read(self, limit: int = 1024) -> list[InvalidationEvent]:
        """Takes up to `limit` of the oldest events; an empty list if there are none. Never waits.

        Raises:
            VerbsError: EINVAL, if the channel is closed; EIO, in a child of fork().
        """
        most = unsigned("limit", limit, 20)
        self._demand_open()
        return [
            InvalidationEvent(cookie, _KINDS[kind], addr, length, offset, count, exact)
            for cookie, kind, addr, length, offset, count, exact in self._native.take(most)
        ]

    def wait(self, timeout: float | None = None) -> list[InvalidationEvent]:
        """Waits until there are events and takes them.

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            TimeoutError: If none came in time.
            VerbsError: As `read()`.
        """
        return wait_for_event(lambda: self.read() or None, timeout, until_readable(self.fileno()))

    def __aiter__(self) -> InvalidationChannel:
        """Events for `async for`, under asyncio and trio; it ends only by an error."""
        return self

    async def __anext__(self) -> InvalidationEvent:
        """Waits for the next event. A task that is cancelled has taken none.

        Raises:
            VerbsError: EINVAL, when the channel is closed.
        """
        await checkpoint()
        while not (events := self.read(1)):
            await wait_readable(self._native.fd)
        return events[0]

    @property
    def lost(self) -> int:
        """Notices that nobody will read: of deregistered regions, beyond 65536 unread events."""
        return self._native.lost

    def _demand_open(self) -> None:
        if self._closed:
            raise VerbsError(errno.EINVAL, self.kind, None, "is closed")

    def __repr__(self) -> str:
        return f"<InvalidationChannel generation={self.generation}>"
