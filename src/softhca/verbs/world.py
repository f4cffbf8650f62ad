"""What a simulated device asks of whoever moves its time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

E = TypeVar("E")


class World(Protocol):
    """The fabric that a device is in; `softhca.testing.Fabric` makes devices that have one."""

    @property
    def num_comp_vectors(self) -> int:
        """Completion vectors of its devices: the same on every machine."""
        ...

    def wait(self, take: Callable[[], E | None], timeout: float | None, what: str) -> E:
        """Lets time pass until `take()` gives something, and returns it.

        Args:
            take: Asked whenever something happened.
            timeout: Seconds of virtual time; None waits for ever.
            what: What is waited for, for the message when it can never come.

        Raises:
            TimeoutError: If nothing came in time.
        """
        ...

    def passes_in(self, loop: object) -> bool:
        """True if time passes while an event loop sleeps: of asyncio itself, of trio its token."""
        ...

    def left_open(self, told: str) -> None:
        """Hears of an object that the garbage collector had to close.

        Args:
            told: What names it, with its device.
        """
        ...

    def address_for(self, address: int, length: int) -> int:
        """What keys call the first byte of a buffer: the same on every run."""
        ...
