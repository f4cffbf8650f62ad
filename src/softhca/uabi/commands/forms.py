"""The two forms of a command: a structure that is written, and attributes of an ioctl(2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from softhca.uabi.commands.call import Call
from softhca.uabi.layout import Fields, Layout
from softhca.uabi.structures import NOTHING

# Takes the fields of the request, returns those of the response. "driver" is the provider's part.
Handler = Callable[[Call, Fields], dict[str, Any]]


@dataclass(frozen=True)
class Write:
    """A command of write(2), which ioctl(2) also carries, as INVOKE_WRITE.

    Attributes:
        number: Of ib_uverbs_write_cmds.
        extended: Of the newer kind, whose structures may grow.
        required: Bytes of the request that must be there; by default all.
        promised: Bytes of the response that there must be room for; by default all.
    """

    number: int
    request: Layout
    response: Layout = NOTHING
    extended: bool = False
    required: int | None = None
    promised: int | None = None

    @property
    def least_request(self) -> int:
        """Bytes of the request that must be there."""
        return self.request.size if self.required is None else self.required

    @property
    def least_response(self) -> int:
        """Bytes of the response that there must be room for."""
        return self.response.size if self.promised is None else self.promised


@dataclass(frozen=True)
class In:
    """An attribute that is a number of the request, or a structure merged into it."""

    number: int
    name: str
    layout: Layout | None = None
    bytes: int = 4
    optional: bool = False


@dataclass(frozen=True)
class Handle:
    """An attribute that names an object of the context."""

    number: int
    name: str
    optional: bool = False


@dataclass(frozen=True)
class Descriptor:
    """An attribute that is a descriptor of the program."""

    number: int
    name: str
    optional: bool = True


@dataclass(frozen=True)
class Created:
    """An attribute where the number of what was made is written, a handle or a descriptor."""

    number: int
    name: str


@dataclass(frozen=True)
class Out:
    """An attribute that takes a number of the response, a structure of it, or bytes.

    Attributes:
        bytes: Of a number; None for bytes of any length.
        least: Bytes that there must be room for; by default all.
    """

    number: int
    name: str
    layout: Layout | None = None
    bytes: int | None = 4
    optional: bool = False
    least: int | None = None

    @property
    def required(self) -> int:
        """Bytes that there must be room for."""
        if self.least is not None:
            return self.least
        return self.layout.size if self.layout is not None else self.bytes or 0


Attribute = In | Handle | Descriptor | Created | Out


@dataclass(frozen=True)
class Method:
    """A method of ioctl(2)."""

    object_id: int
    method_id: int
    attributes: tuple[Attribute, ...]


@dataclass(frozen=True)
class Command:
    """A command: what it does, and the forms that it comes in."""

    handler: Handler
    writes: tuple[Write, ...] = ()
    method: Method | None = None
