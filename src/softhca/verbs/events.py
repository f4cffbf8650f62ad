"""Asynchronous events: what happened to an object without anybody asking."""

from __future__ import annotations

import errno
import math
import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from softhca.verbs.enums import EventType
from softhca.verbs.errors import VerbsError

if TYPE_CHECKING:
    from softhca.verbs.cq import CQ
    from softhca.verbs.qp import QP
    from softhca.verbs.srq import SRQ


@dataclass(frozen=True)
class AsyncEvent:
    """An asynchronous event (struct ibv_async_event).

    Attributes:
        event_type: What happened.
        element: The queue pair, CQ or SRQ that it happened to; the port's number for events of a
            port; None if the object is gone.
    """

    event_type: EventType
    element: QP | CQ | SRQ | int | None


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


E = TypeVar("E")

# The longest single wait; poll(2) takes no more than 31 bits of milliseconds.
_LONGEST_MS = 1_000_000_000.0


def _seconds(timeout: float) -> float:
    try:
        is_nan = math.isnan(timeout)
    except OverflowError:  # An int beyond every float.
        return math.inf if timeout > 0 else -math.inf
    except TypeError:
        raise TypeError(f"timeout must be a number, not {type(timeout).__name__}") from None
    if is_nan:
        raise VerbsError(errno.EINVAL, "timeout", timeout, "must be a number of seconds")
    return float(timeout)


def wait_for_event(fd: int, take: Callable[[], E | None], timeout: float | None) -> E:
    """Takes an event, waiting on its descriptor while there is none.

    Raises:
        TimeoutError: If none came within `timeout` seconds.
        VerbsError: EOPNOTSUPP, without a descriptor: the device is simulated.
    """
    if fd < 0:
        raise VerbsError(errno.EOPNOTSUPP, "device", None, "is simulated: poll for events")
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    deadline = math.inf if timeout is None else time.monotonic() + _seconds(timeout)
    while True:
        event = take()
        if event is not None:
            return event
        left_ms = (deadline - time.monotonic()) * 1000
        if left_ms <= 0:
            raise TimeoutError(f"no event within {timeout} s")
        poller.poll(min(left_ms, _LONGEST_MS))
