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
    from softhca.uabi.events import AsyncPipe
    from softhca.uabi.layout import Fields
    from softhca.uabi.objects import Owned


# What is answered before there is a descriptor, which could not be taken back from a program that
# cannot be told of it.
NO_DESCRIPTOR = 0xFFFFFFFF


def refused(code: int, why: str = "") -> OSError:
    """The error that the program gets; `why` is for whoever debugs."""
    return OSError(code, why or os.strerror(code))


class AnswerError(OSError):
    """An error that is the answer to a question, and nothing that was refused."""


def demand_flags(flags: int, allowed: int) -> None:
    """Refuses flags that nobody knows; EINVAL."""
    if flags & ~allowed:
        raise refused(errno.EINVAL, f"flags {flags:#x}")


def _answered(answer: dict[str, Any]) -> None:
    """There is nothing to tell, or nobody is to be told any more."""


@dataclass
class Call:
    """One command under way.

    Attributes:
        context: The opened device that it is for.
        driver_in_at: Where the program has what its provider passes to the driver.
        driver_in_length: How many bytes that is.
        driver_out_length: Bytes that the provider has room for.
        rest_at: Where the program has what stands behind the request.
        rest_length: How many bytes that is.
        before_the_context: Commands that the program may give before it has its context.
        doing: What is being done, for whoever debugs.
        undo: What to do if the program cannot be told of what was made.
        respond: Tells the program now what a command answers, which is done anyway at its end.
    """

    listener: Listener
    asked: Asked
    context: Context
    driver_in_at: int = 0
    driver_in_length: int = 0
    driver_out_length: int = 0
    rest_at: int = 0
    rest_length: int = 0
    before_the_context: frozenset[Handler] = frozenset()
    doing: str = ""
    undo: list[Callable[[], object]] = field(default_factory=list)
    respond: Callable[[dict[str, Any]], object] = _answered

    def read(self, address: int, length: int) -> bytes:
        """Copies from the program; EFAULT."""
        octets = self.asked.read(address, length) if length else b""
        if octets is None:
            raise refused(errno.EFAULT, f"{length} bytes at {address:#x} cannot be read")
        return octets

    def demand_waiting(self) -> None:
        """Refuses what nobody waits for any more, whose number may be somebody else's; ENOENT."""
        if not self.listener.is_valid(self.asked):
            raise refused(errno.ENOENT, "the program does not wait for the answer any more")

    def write(self, address: int, octets: bytes) -> None:
        """Copies to the program; EFAULT; ENOENT, if it waits no more."""
        self.demand_waiting()
        if octets and not self.asked.write(address, octets):
            raise refused(errno.EFAULT, f"{len(octets)} bytes at {address:#x} cannot be written")

    def demand_zero(self, address: int, length: int) -> None:
        """Refuses what a longer structure than ours says; EOPNOTSUPP."""
        octets = self.asked.read(address, length) if length else b""
        if octets is None or any(octets):
            raise refused(errno.EOPNOTSUPP, "more than is known here")

    def read_driver(self, size: int) -> bytes:
        """What the provider passes; EINVAL, if it passes less than `size`; EFAULT."""
        if self.driver_in_length < size:
            why = f"{self.driver_in_length} bytes of the provider, not {size}"
            raise refused(errno.EINVAL, why)
        return self.read(self.driver_in_at, size)

    def demand_driver_room(self, size: int) -> None:
        """Refuses a provider that cannot be told where its queues are; EINVAL."""
        if self.driver_out_length < size:
            why = f"room for {self.driver_out_length} bytes of the provider, not {size}"
            raise refused(errno.EINVAL, why)

    def give_descriptor(self, descriptor: int) -> int:
        """Gives the program a copy of a descriptor; returns its number there."""
        return self.listener.add_descriptor(self.asked, descriptor, close_on_exec=True)

    def events_of(self, request: Fields) -> AsyncPipe | None:
        """Where events of what is made go: where the request says, or to the context's first."""
        if "event_fd" in request:
            return self.context.async_pipe_of(self.asked.task, request.event_fd)
        return self.context.first_async_pipe

    def own(self, thing: Owned) -> int:
        """Gives what was made a handle, until it is destroyed or the program cannot be told."""
        objects = self.context.objects
        handle = objects.add(thing)
        self.undo.append(lambda: objects.destroy(handle, type(thing)))
        return handle

    def run(self, handler: Handler, request: Fields) -> dict[str, Any]:
        """Does a command; EINVAL, before the program has its context."""
        if not self.context.is_initialized and handler not in self.before_the_context:
            raise refused(errno.EINVAL, "the program has not asked for its context yet")
        return handler(self, request)

    def end(self) -> None:
        """Lets go of what answers it, which has the call itself."""
        self.respond = _answered

    def take_back(self) -> None:
        """Undoes what was made."""
        while self.undo:
            self.undo.pop()()
