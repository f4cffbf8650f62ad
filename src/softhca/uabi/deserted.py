"""Tables of what programs have and let go of without telling."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


def has_no_reader(writer: int) -> bool:
    """Whether nobody has the reading end of a pipe any more."""
    poll = select.poll()
    poll.register(writer, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


# So few are not looked at.
_FEW = 8


class Swept(Generic[K, V]):
    """A dictionary that forgets what is deserted.

    To find that out takes a look at each entry. So it looks when it has twice as many as were left
    the last time: however many there are, adding one costs two looks at most, and what is deserted
    is never much more than what is not.
    """

    def __init__(self, is_deserted: Callable[[K, V], bool]) -> None:
        self._is_deserted = is_deserted
        self._entries: dict[K, V] = {}
        self._room = _FEW

    def get(self, key: K) -> V | None:
        """What was added by this key, deserted or not."""
        return self._entries.get(key)

    def add(self, key: K, value: V) -> list[V]:
        """Adds it, in place of what had the key; returns what it forgets for being deserted."""
        forgotten: list[V] = []
        if len(self._entries) >= self._room:
            deserted = [key for key, one in self._entries.items() if self._is_deserted(key, one)]
            forgotten = [self._entries.pop(key) for key in deserted]
            self._room = max(_FEW, 2 * len(self._entries))
        self._entries[key] = value
        return forgotten

    def clear(self) -> None:
        """Forgets everything."""
        self._entries.clear()
        self._room = _FEW

    def __iter__(self) -> Iterator[V]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)
