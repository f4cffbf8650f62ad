"""Structures of the ABI as tables of fields, and the bytes that they are.

The kernel lays its structures out so that they have no padding but what they name; little endian is
what both of our architectures are.
"""

from __future__ import annotations

import struct
from typing import Any

# Format and the value of a field that nobody set. What is big endian, or no number, is bytes.
_KINDS: dict[str, tuple[str, int | bytes]] = {
    "u8": ("B", 0),
    "u16": ("H", 0),
    "u32": ("I", 0),
    "s32": ("i", 0),
    "u64": ("Q", 0),
    "be64": ("8s", b""),
    "gid": ("16s", b""),
}


class Fields(dict[str, Any]):
    """Values of a structure by the names of its fields, also as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Layout:
    """A structure: its fields in their order.

    `Layout("u64 start; u32 pd_handle; u8*5 reserved")`; a type that is none of the ABI's numbers is
    another layout, given by its name. Fields that are named reserved are zero when packed and not
    looked at when unpacked.

    Attributes:
        size: Bytes.
    """

    def __init__(self, fields: str, **nested: Layout) -> None:
        self._fields: list[tuple[str, Layout | None, int | bytes]] = []
        formats = []
        for declaration in filter(None, (part.strip() for part in fields.split(";"))):
            kind, name = declaration.split()
            if kind in nested:
                formats.append(f"{nested[kind].size}s")
                self._fields.append((name, nested[kind], b""))
                continue
            kind, _, count = kind.partition("*")
            form, unset = _KINDS[kind]
            if name.startswith("reserved"):
                formats.append(f"{struct.calcsize(f'<{form}') * int(count or 1)}x")
            else:
                formats.append(form)
                self._fields.append((name, None, unset))
        self._struct = struct.Struct("<" + "".join(formats))
        self.size: int = self._struct.size

    def unpack(self, octets: bytes) -> Fields:
        """Reads a structure; what `octets` lack of it is zero, and what is behind it is ignored."""
        values = self._struct.unpack(octets[: self.size].ljust(self.size, b"\0"))
        return Fields(
            (name, value if nested is None else nested.unpack(value))
            for (name, nested, _), value in zip(self._fields, values, strict=True)
        )

    def pack(self, values: dict[str, Any]) -> bytes:
        """The bytes of a structure; fields without a value are zero."""
        return self._struct.pack(
            *(
                values.get(name, unset) if nested is None else nested.pack(values.get(name, {}))
                for name, nested, unset in self._fields
            )
        )
