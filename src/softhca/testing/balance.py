"""Whether queues and responder resources hold what the trace says that they must."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from softhca import _adapter
from softhca.verbs.device import Device
from softhca.verbs.enums import QPState, QPType

_RUNNING = (QPState.RTR, QPState.RTS, QPState.SQD)


class Owed(NamedTuple):
    """What a queue pair must hold.

    Attributes:
        sends: Work requests that were posted, but for those before the last completion;
            None if that cannot be told.
        receives: Those that have not completed; None if they are of a shared queue.
        resources: READs and atomics that it promised to answer at once; None if it did not yet.
    """

    sends: int | None
    receives: int | None
    resources: int | None


def imbalances(devices: Iterable[Device], owed: Callable[[int, int], Owed | None]) -> Iterator[str]:
    """Says where slots or resources were lost, or are held for nothing.

    Args:
        devices: Of the hosts, in order.
        owed: What a queue pair must hold, by host and number; None if nobody knows.
    """
    for host, device in enumerate(devices):
        if device.closed:
            continue
        for number in sorted(device._qps):
            qp = device._qps.get(number)
            due = None if qp is None or qp.closed else owed(host, number)
            if qp is None or due is None:
                continue
            hca = device.adapter
            sends, receives, resources, answering, answers = hca.qp_load(number)
            about = f"{qp!r} of {device.name}"
            if due.sends is not None and qp.type != QPType.XRC_RECV and sends != due.sends:
                yield f"{about} holds {sends} slots for {due.sends} send requests"
            if due.receives is not None and receives != due.receives:
                yield f"{about} holds {receives} receives of {due.receives} posted"
            # Not by the object's own attribute: a fault may refuse the verb.
            if _adapter.Hca.query_qp(hca, number)[0].qp_state not in _RUNNING:
                continue
            if due.resources is not None and resources != due.resources:
                yield f"{about} has {resources} responder resources of {due.resources}"
            if answering != answers:
                yield f"{about}: {answering} responder resources wait for {answers} answers"
