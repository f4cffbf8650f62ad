"""What a command is given besides its fields: the program, its context, and the driver's part."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from softhca._adapter import Asked, Listener
    from softhca.uabi.commands.forms import Handler
    from softhca.uabi.context import Context
    from softhca.uabi.layout import Fields
    from softhca.uabi.objects import Owned


def refused(code: int, why: str = "") -> OSError:
    """The error that the program gets; `why` is for whoever debugs."""
    return OSError(code, why or os.strerror(code))


@dataclass
class Call:
    """One command under way.

    Attributes:
        context: The opened device that it is for.
        driver_in: What the provider passed for its driver.
        driver_out_length: Bytes that the provider has room for.
        before_the_context: Commands that the program may give before it has its context.
        undo: What to do if the program cannot be told of what was made.
    """

    listener: Listener
    asked: Asked
    context: Context
    driver_in: bytes = b""
    driver_out_length: int = 0
    before_the_context: frozenset[Handler] = frozenset()
    undo: list[Callable[[], object]] = field(default_factory=list)

    def read(self, address: int, length: int) -> bytes:
        """Copies from the program; EFAULT."""
        octets = self.asked.read(address, length) if length else b""
        if octets is None:
            raise refused(errno.EFAULT)
        return octets

    def write(self, address: int, octets: bytes) -> None:
        """Copies to the program; EFAULT."""
        if octets and not self.asked.write(address, octets):
            raise refused(errno.EFAULT)

    def give_descriptor(self, descriptor: int) -> int:
        """Gives the program a copy of a descriptor; returns its number there."""
        return self.listener.add_descriptor(self.asked, descriptor, close_on_exec=True)

    def own(self, thing: Owned) -> int:
        """Gives what was made a handle, until it is destroyed or the program cannot be told."""
        objects = self.context.objects
        handle = objects.add(thing)
        self.undo.append(lambda: objects.destroy(handle, type(thing)))
        return handle

    def run(self, handler: Handler, request: Fields) -> dict[str, Any]:
        """Does a command; EINVAL, before the program has its context."""
        if not self.context.is_initialized and handler not in self.before_the_context:
            raise refused(errno.EINVAL, "no context")
        return handler(self, request)

    def take_back(self) -> None:
        """Undoes what was made."""
        while self.undo:
            self.undo.pop()()
