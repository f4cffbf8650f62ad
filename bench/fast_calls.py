"""The calls of softhca that benches make in a loop: what is fastest is chosen here."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import softhca as hca

# Room for completions that no object is made for, where this softhca has it.
_Buffer: Any = getattr(hca, "CompletionBuffer", None)

Poll = Callable[[Any], int]


class Room:
    """Room for completions as objects."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.completions: list[hca.WC] = []


def room_for(most: int) -> Any:
    """Room for so many completions, to be used again and again."""
    return Room(most) if _Buffer is None else _Buffer(most)


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
    into: Poll | None = getattr(cq, "poll_into", None)
    if into is not None:
        return into
    poll = cq.poll

    def poll_objects(room: Room) -> int:
        room.completions = poll(room.most)
        return len(room.completions)

    return poll_objects


def poll_one_of(cq: hca.CQ) -> Callable[[], Any]:
    """The call that takes one completion as an object, or something false."""
    one: Callable[[], Any] | None = getattr(cq, "poll_one", None)
    return one if one is not None else functools.partial(_first, cq.poll)


def _first(poll: Callable[[int], list[hca.WC]]) -> hca.WC | None:
    found = poll(1)
    return found[0] if found else None


def check(room: Any, count: int = 1) -> None:
    """Raises if one of the completions that were taken last is an error."""
    if isinstance(room, Room):
        for wc in room.completions:
            wc.raise_for_status()
        return
    wrong = room.first_error(count)
    if wrong >= 0:
        room[wrong].raise_for_status()
