"""Links and switches of a fabric."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any

from softhca import _adapter
from softhca.verbs.checks import real, unsigned
from softhca.verbs.device import Device
from softhca.verbs.errors import VerbsError
from softhca.verbs.opening import mtu_code


class Switch:
    """A switch: it forwards packets, keeps them in queues, marks and loses them.

    Attributes:
        name: What messages call it.
    """

    def __init__(self, node: int, name: str) -> None:
        self.node: int = node
        self.name: str = name

    def __repr__(self) -> str:
        return f"<Switch {self.name}>"


class Link:
    """A link between two hosts or switches, with two directions of the same shape.

    Attributes:
        a: One end.
        b: The other.
        number: In the fabric, from 0.
    """

    def __init__(
        self,
        native: _adapter.Fabric,
        number: int,
        a: Device | Switch,
        b: Device | Switch,
        shape: _adapter.LinkShape,
    ) -> None:
        self._native = native
        self.number: int = number
        self.a: Device | Switch = a
        self.b: Device | Switch = b
        self.shape: _adapter.LinkShape = shape

    def set_up(self, up: bool) -> None:
        """Takes the link down, or brings it up; ways around it are found at once."""
        self._native.set_link_up(self.number, bool(up))

    @property
    def counters(self) -> dict[str, dict[str, int]]:
        """By direction, "a to b" and "b to a": what went by, was lost and marked, and waits."""
        lane = 2 * self.number
        return {
            "a to b": self._native.lane_counters(lane),
            "b to a": self._native.lane_counters(lane + 1),
        }

    def __repr__(self) -> str:
        return f"<Link {self.a.name} to {self.b.name}>"


def shape_of(
    *,
    gbps: float | None = 100.0,
    latency_ns: int = 1000,
    mtu: int = 4096,
    queue_bytes: int | None = None,
    mark_bytes: tuple[int, int] | None = None,
    mark_probability: float = 1.0,
) -> _adapter.LinkShape:
    """What a link is like.

    Raises:
        VerbsError: EINVAL, for values that no link can have.
    """
    shape = _adapter.LinkShape()
    shape.bits_per_second = 0 if gbps is None else round(real("gbps", gbps, 1e-6, 8000) * 1e9)
    shape.latency_ns = unsigned("latency_ns", latency_ns, 48)
    shape.mtu_bytes = 128 << mtu_code(mtu)
    shape.queue_bytes = 0 if queue_bytes is None else unsigned("queue_bytes", queue_bytes, 48)
    if queue_bytes is not None and shape.queue_bytes < 128:
        raise VerbsError(errno.EINVAL, "queue_bytes", queue_bytes, "must hold a packet of 128")
    if mark_bytes is not None:
        if not isinstance(mark_bytes, Sequence) or len(mark_bytes) != 2:
            raise TypeError(f"mark_bytes must be (from, to), not {mark_bytes!r}")
        first, last = (unsigned("mark_bytes", one, 48) for one in mark_bytes)
        if first >= last:
            rule = "must be (from, to), from < to"
            raise VerbsError(errno.EINVAL, "mark_bytes", mark_bytes, rule)
        shape.mark_from_bytes, shape.mark_all_bytes = first, last
    shape.mark_probability = real("mark_probability", mark_probability, 0, 1)
    return shape


def link_number(link: Any, links: list[Link]) -> int:
    """Number of a link of the fabric.

    Raises:
        VerbsError: EINVAL, if it is none of them.
    """
    if link not in links:
        raise VerbsError(errno.EINVAL, "link", link, "must be a link of this fabric")
    return int(link.number)
