"""Ends of connections on hosts of a fabric."""

from __future__ import annotations

from typing import Any

import softhca as hca
from softhca.testing import End, Fabric, Pair

__all__ = ["End", "connected", "pair"]


def connected(
    fabric: Fabric, a: hca.Device, b: hca.Device, size: int = 1 << 16, **attributes: Any
) -> tuple[End, End]:
    """Two ends on hosts that there are, connected to each other."""
    near, far = fabric.keep(End(a, size)), fabric.keep(End(b, size))
    near.qp.connect(far.qp.info(), **attributes)
    far.qp.connect(near.qp.info(), **attributes)
    return near, far


def pair(fabric: Fabric, size: int = 1 << 16, **attributes: Any) -> tuple[End, End]:
    """Two hosts of their own with connected ends."""
    made = Pair(fabric, size, **attributes)
    return made.a, made.b
