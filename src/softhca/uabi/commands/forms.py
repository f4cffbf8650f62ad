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
        driver: Of those of the older kind: what stands behind the structures is the provider's.
        required: Bytes of the request that must be there; by default all.
        promised: Bytes of the response that there must be room for; by default all.
        has_rest: What stands behind the request is the command's.
    """

    number: int
    request: Layout
    response: Layout = NOTHING
    extended: bool = False
    driver: bool = False
    required: int | None = None
    promised: int | None = None
    has_rest: bool = False

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
    """An attribute that is a number of the request, or a structure merged into it.

    A number is exactly as long as it is; a structure may be longer, with zeros.
    """

    number: int
    name: str
    layout: Layout | None = None
    bytes: int = 4
    optional: bool = False


@dataclass(frozen=True)
class Const:
    """An attribute that is a number in eight bytes, whatever `most` of it there may be."""

    number: int
    name: str
    most: int = 0xFFFFFFFF
    bytes: int = 8
    optional: bool = False


@dataclass(frozen=True)
class Flags:
    """An attribute that is a set of flags, in four bytes or eight."""

    number: int
    name: str
    bytes: int = 4
    optional: bool = True


@dataclass(frozen=True)
class Octets:
    """An attribute of bytes that the request gets as where they lie.

    Attributes:
        least: Bytes that must be there.
        is_copied: They are read at once.
    """

    number: int
    name: str
    least: int = 0
    optional: bool = True
    is_copied: bool = False


@dataclass(frozen=True)
class Handle:
    """An attribute that names an object of the context.

    Attributes:
        kind: Of the object; None for a kind that this device has none of.
    """

    number: int
    name: str
    kind: type[Any] | None
    optional: bool = False


@dataclass(frozen=True)
class Descriptor:
    """An attribute that is a descriptor of the program: of a channel, or of asynchronous events."""

    number: int
    name: str
    is_channel: bool = False
    optional: bool = True


@dataclass(frozen=True)
class Created:
    """An attribute where the number of what was made is written, a handle or a descriptor."""

    number: int
    name: str
    optional: bool = False


@dataclass(frozen=True)
class Out:
    """An attribute that takes a number of the response, a structure of it, or bytes.

    Attributes:
        bytes: Of a number; None for bytes of any length.
        exact: There must be room for just as much: of numbers, and of structures that never grow.
        least: Bytes that there must be room for, where any length will do.
    """

    number: int
    name: str
    layout: Layout | None = None
    bytes: int | None = 4
    optional: bool = False
    exact: bool = False
    least: int = 0

    @property
    def required(self) -> int:
        """Bytes that there must be room for."""
        if self.layout is not None:
            return self.layout.size
        return self.least if self.bytes is None else self.bytes

    def fits(self, room: int) -> bool:
        """Whether an attribute may be as long."""
        is_number = self.layout is None and self.bytes is not None
        return room == self.required if self.exact or is_number else room >= self.required


Attribute = In | Const | Flags | Octets | Handle | Descriptor | Created | Out


@dataclass(frozen=True)
class Method:
    """A method of ioctl(2).

    Attributes:
        driver: Whether there are attributes of the provider's besides.
    """

    object_id: int
    method_id: int
    attributes: tuple[Attribute, ...]
    driver: bool = False


@dataclass(frozen=True)
class Command:
    """A command: what it does, and the forms that it comes in."""

    handler: Handler
    writes: tuple[Write, ...] = ()
    method: Method | None = None
