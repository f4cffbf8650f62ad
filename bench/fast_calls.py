"""The calls of softhca that benches make in a loop: what is fastest is chosen here."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import softhca as hca

Poll = Callable[[hca.CompletionBuffer], int]


def open_device(link: str = "", address: str = "") -> hca.Device:
    """Opens an adapter; `link` "udp" keeps it from taking a shorter way."""
    opening: Callable[..., hca.Device] = hca.open
    if link and "link" in inspect.signature(opening).parameters:
        return opening(address or None, link=link)
    return opening(address or None)


def poll_of(cq: hca.CQ | None) -> Poll:
    """The call that takes completions into room for them, and returns how many."""
    # A queue pair of XRC may lack a queue; those of the benches do not.
    assert cq is not None
    return cq.poll_into


def check(room: hca.CompletionBuffer, count: int = 1) -> None:
    """Raises if one of the completions that were taken last is an error."""
    wrong = room.first_error(count)
    if wrong >= 0:
        room[wrong].raise_for_status()
