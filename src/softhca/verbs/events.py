"""Asynchronous events: what happened to an object without anybody asking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from softhca.verbs.enums import EventType

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
