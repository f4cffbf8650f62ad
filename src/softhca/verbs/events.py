"""Asynchronous events: what happened to an object without anybody asking."""

from __future__ import annotations

import errno
import math
import select
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from softhca.verbs.acknowledgement import Acknowledgement
from softhca.verbs.enums import EventType
from softhca.verbs.errors import VerbsError
from softhca.verbs.waiting import checkpoint, wait_readable

if TYPE_CHECKING:
    from softhca.verbs.cq import CQ
    from softhca.verbs.device import Device
    from softhca.verbs.qp import QP
    from softhca.verbs.srq import SRQ

QP_EVENTS = frozenset(
    {
        EventType.QP_FATAL,
        EventType.QP_REQ_ERR,
        EventType.QP_ACCESS_ERR,
        EventType.COMM_EST,
        EventType.SQ_DRAINED,
        EventType.PATH_MIG,
        EventType.PATH_MIG_ERR,
        EventType.QP_LAST_WQE_REACHED,
    }
)
SRQ_EVENTS = frozenset({EventType.SRQ_ERR, EventType.SRQ_LIMIT_REACHED})
CQ_EVENTS = frozenset({EventType.CQ_ERR})


class AsyncEvent:
    """An asynchronous event (struct ibv_async_event; IBTA Vol 1, 11.6.3).

    It is acknowledged with `ack()`, at the end of a `with` block, or when nobody holds it any
    more. Until then, closing the object that it happened to waits.

    Attributes:
        event_type: What happened.
        element: The queue pair, CQ or SRQ that it happened to; the port's number for events of a
            port; the device for DEVICE_FATAL.
    """

    __slots__ = ("_device", "_unacknowledged", "element", "event_type")

    def __init__(
        self,
        device: Device,
        event_type: EventType,
        element: QP | CQ | SRQ | Device | int,
        counted_by: Acknowledgement | None,
    ) -> None:
        self.event_type: EventType = event_type
        self.element: QP | CQ | SRQ | Device | int = element
        self._device = device
        # Whoever takes the one entry acknowledges: of several threads one does.
        self._unacknowledged = [counted_by]

    def ack(self) -> None:
        """Acknowledges the event (ibv_ack_async_event): its object may be closed.

        Raises:
            VerbsError: EINVAL, the second time.
        """
        if not self._try_ack():
            raise VerbsError(errno.EINVAL, "event", None, "was acknowledged already")

    def _try_ack(self) -> bool:
        try:
            counted_by = self._unacknowledged.pop()
        except IndexError:
            return False
        if counted_by is not None:
            counted_by.acknowledge()
        return True

    def __enter__(self) -> AsyncEvent:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Acknowledges the event, unless that is done."""
        self._try_ack()

    def __del__(self) -> None:
        with suppress(Exception):  # The interpreter ends, and modules are gone.
            self._try_ack()

    def __reduce__(self) -> str | tuple[object, ...]:
        # A copy would acknowledge for the original.
        raise TypeError("cannot pickle or copy AsyncEvent: it is acknowledged once")

    def __repr__(self) -> str:
        return f"<AsyncEvent {self.event_type.name} {self.element!r}>"


def take_event(device: Device) -> AsyncEvent | None:
    """Takes a device's oldest event of something that is still open; None if there is none."""
    while (taken := device._hca.next_async_event()) is not None:
        event_type, number = taken
        holder: QP | CQ | SRQ | None = None
        if event_type in QP_EVENTS:
            holder = device._qps.get(number)
        elif event_type in CQ_EVENTS:
            holder = device._cqs.get(number)
        elif event_type in SRQ_EVENTS:
            holder = device._srqs.get(number)
        elif event_type is EventType.DEVICE_FATAL:
            return AsyncEvent(device, event_type, device, None)
        else:
            return AsyncEvent(device, event_type, number, None)
        # Else it was closed meanwhile, or is just being closed, and its events with it.
        if holder is not None and holder._async_acks.taken():
            return AsyncEvent(device, event_type, holder, holder._async_acks)
    return None


class AsyncEvents:
    """The events of a device, for `async for`; it ends only by an error."""

    __slots__ = ("_device",)

    def __init__(self, device: Device) -> None:
        self._device = device

    def __aiter__(self) -> AsyncEvents:
        return self

    async def __anext__(self) -> AsyncEvent:
        """Waits for the next event. A task that is cancelled has taken none.

        Raises:
            VerbsError: EINVAL, when the device is closed; EOPNOTSUPP, on a simulated device
                without a fabric; EDEADLK, on one of a fabric in an event loop that
                `Fabric.run_async` or `run_trio` does not run.
        """
        hca = self._device._hca  # Keeps the descriptor open though the device be closed.
        fd = demand_descriptor(hca.async_event_fd)
        await checkpoint()
        while (event := take_event(self._device)) is None:
            await wait_readable(fd, self._device._world)
        return event


E = TypeVar("E")

# The longest single wait; poll(2) takes no more than 31 bits of milliseconds.
_LONGEST_MS = 1_000_000_000.0


def _seconds(timeout: float) -> float:
    if isinstance(timeout, bool):
        raise TypeError(f"timeout must be a number, not {timeout}")
    try:
        is_nan = math.isnan(timeout)
    except OverflowError:  # An int beyond every float.
        return math.inf if timeout > 0 else -math.inf
    except TypeError:
        raise TypeError(f"timeout must be a number, not {type(timeout).__name__}") from None
    if is_nan:
        raise VerbsError(errno.EINVAL, "timeout", timeout, "must be a number of seconds")
    return float(timeout)


def demand_descriptor(fd: int) -> int:
    """Returns the descriptor of a channel.

    Raises:
        VerbsError: EOPNOTSUPP, without a descriptor: the device is simulated.
    """
    if fd < 0:
        raise VerbsError(errno.EOPNOTSUPP, "device", None, "is simulated: poll for events")
    return fd


def until_readable(fd: int) -> Callable[[float], object]:
    """What `wait_for_event` waits by where it waits on a descriptor alone.

    Raises:
        VerbsError: EOPNOTSUPP, without a descriptor: the device is simulated.
    """
    poller = select.poll()
    poller.register(demand_descriptor(fd), select.POLLIN)
    return lambda seconds: poller.poll(min(seconds * 1000, _LONGEST_MS))


def wait_for_event(
    take: Callable[[], E | None], timeout: float | None, wait: Callable[[float], object]
) -> E:
    """Takes an event, waiting while there is none.

    Args:
        take: Takes an event, if there is one.
        timeout: Seconds; None waits for ever.
        wait: Waits for so many seconds or less.

    Raises:
        TimeoutError: If none came within `timeout` seconds.
    """
    deadline = math.inf if timeout is None else time.monotonic() + _seconds(timeout)
    while True:
        event = take()
        if event is not None:
            return event
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"no event within {timeout} s")
        wait(left)
