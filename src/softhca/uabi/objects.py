"""The objects of one opened device, by the handles that its programs know them by."""

from __future__ import annotations

import errno
import heapq
import itertools
from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

from softhca.uabi.commands.call import refused


class Owned(Protocol):
    """What has a handle."""

    def destroy(self) -> dict[str, int]:
        """Destroys it; returns what the program is told, such as how many events it was given."""
        ...


T = TypeVar("T")


class Objects:
    """A table of handles. Those of other contexts, or of another kind of object, name nothing."""

    def __init__(self) -> None:
        self._objects: dict[int, Any] = {}
        self._free: list[int] = []

    def add(self, thing: Owned) -> int:
        """Returns the handle, the lowest that is free."""
        handle = heapq.heappop(self._free) if self._free else len(self._objects)
        self._objects[handle] = thing
        return handle

    def get(self, handle: int, kind: type[T]) -> T:
        """The object of a handle.

        Raises:
            OSError: ENOENT, if there is none; EINVAL, if it is of another kind or cannot be one.
        """
        found = self._objects.get(handle)
        if found is None and not handle >> 63:
            raise refused(errno.ENOENT, f"{kind.__name__} {handle}")
        if not isinstance(found, kind):
            raise refused(errno.EINVAL, f"{kind.__name__} {handle}")
        return found

    def handles_of(self, kind: type[Any]) -> list[int]:
        """The handles of all objects of a kind."""
        return [handle for handle, one in self._objects.items() if isinstance(one, kind)]

    def destroy(self, handle: int, kind: type[Any]) -> dict[str, int]:
        """Destroys an object.

        Raises:
            OSError: ENOENT, if there is none; EBUSY, while something is made of it.
        """
        told: dict[str, int] = self.get(handle, kind).destroy()
        del self._objects[handle]
        heapq.heappush(self._free, handle)
        return told

    def destroy_all(self, portion: int) -> Iterator[None]:
        """Destroys everything, the youngest first; what is still used then, after its users.

        A window is older than a region that was registered later and that it is bound to.

        Args:
            portion: After how many objects it pauses, to let others have a turn.

        Raises:
            OSError: Why what is left cannot be destroyed, if it is not for one another.
        """
        left = list(self._objects.values())
        self._objects.clear()
        self._free.clear()
        for thing in left:
            if hasattr(thing, "abandon"):
                thing.abandon()
        turns = itertools.count(1)
        while left:
            count, used = len(left), []
            while left:
                if next(turns) % portion == 0:
                    yield
                # What is destroyed is let go of at once: to take mappings away costs as much.
                thing = left.pop()
                try:
                    thing.destroy()
                except OSError:
                    used.append(thing)
                    if len(used) == count:
                        raise
            left = used[::-1]

    def __len__(self) -> int:
        return len(self._objects)
