"""A range of somebody's registered memory, as a value that travels."""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass

from softhca.verbs.checks import integer, packed_bytes, unsigned
from softhca.verbs.errors import VerbsError

# Address, length, rkey: 20 bytes, big-endian as the wire is.
_LAYOUT = struct.Struct(">QQI")


def bounds_of(part: slice, length: int) -> tuple[int, int]:
    """Resolves a slice of `length` bytes into (start, stop), and refuses what leaves it.

    Python's own slices are cut to what is there; memory that is silently shorter than asked for
    would be a wrong transfer.
    """
    if not isinstance(part, slice):
        raise TypeError(f"take a slice, such as [0:{length}], not [{part!r}]")
    if part.step not in (None, 1):
        raise VerbsError(errno.EINVAL, "step", part.step, "must be 1: a range is contiguous")
    start = 0 if part.start is None else _resolved("start", part.start, length)
    stop = length if part.stop is None else _resolved("stop", part.stop, length)
    if not 0 <= start <= length:
        raise VerbsError(errno.EINVAL, "start", part.start, f"must lie within {length} bytes")
    if not start <= stop <= length:
        raise VerbsError(errno.EINVAL, "stop", part.stop, f"must be {start} to {length}")
    return start, stop


def _resolved(argument: str, position: int, length: int) -> int:
    number = position if type(position) is int else integer(argument, position)
    return number + length if number < 0 else number


@dataclass(frozen=True, slots=True)
class RemoteMemory:
    """A range of a peer's memory: what an RDMA operation names.

    Slices like a buffer, pickles, and packs to 20 bytes. It holds nothing: the peer's region must
    stay registered.

    Attributes:
        addr: First byte, as the region's key addresses it.
        rkey: Key of the region.
        length: Bytes.
    """

    addr: int
    rkey: int
    length: int

    def __post_init__(self) -> None:
        unsigned("addr", self.addr, 64)
        unsigned("rkey", self.rkey, 32)
        unsigned("length", self.length, 64)

    def __getitem__(self, part: slice) -> RemoteMemory:
        """Returns a part of the range, in bytes.

        Raises:
            VerbsError: EINVAL, if the part leaves the range.
        """
        start, stop = bounds_of(part, self.length)
        return RemoteMemory(self.addr + start, self.rkey, stop - start)

    def __len__(self) -> int:
        return self.length

    def __bool__(self) -> bool:
        return self.length > 0  # The whole address space is longer than len() can say.

    def to_bytes(self) -> bytes:
        """Packs into 20 bytes, big-endian: address (8), length (8), rkey (4)."""
        return _LAYOUT.pack(self.addr, self.length, self.rkey)

    @classmethod
    def from_bytes(cls, packed: bytes | bytearray | memoryview) -> RemoteMemory:
        """Unpacks what `to_bytes` packed.

        Raises:
            VerbsError: EINVAL, if there are not 20 bytes.
            TypeError: If these are no bytes.
        """
        addr, length, rkey = _LAYOUT.unpack(packed_bytes("packed", packed, _LAYOUT.size))
        return cls(addr=addr, rkey=rkey, length=length)

    def __repr__(self) -> str:
        return f"RemoteMemory(addr={self.addr:#x}, rkey={self.rkey:#x}, length={self.length})"
