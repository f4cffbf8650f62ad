"""What a task has mapped, of which /proc/PID/maps tells who asks, or who reads it all."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass

# PROCMAP_QUERY, since Linux 6.11: asks for the mapping at an address, or for the next one.
_QUERY = 0xC0686611
_READABLE, _WRITABLE, _SHARED = 1 << 0, 1 << 1, 1 << 3
_COVERING_OR_NEXT = 1 << 4
_LONGEST_NAME = 4096


class _Query(ctypes.Structure):
    """struct procmap_query: what is asked, and what is told."""

    _fields_ = (
        ("size", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("address", ctypes.c_uint64),
        ("first", ctypes.c_uint64),
        ("last", ctypes.c_uint64),
        ("rights", ctypes.c_uint64),
        ("page_size", ctypes.c_uint64),
        ("offset", ctypes.c_uint64),
        ("inode", ctypes.c_uint64),
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("name_size", ctypes.c_uint32),
        ("build_id_size", ctypes.c_uint32),
        ("name_at", ctypes.c_uint64),
        ("build_id_at", ctypes.c_uint64),
    )


@dataclass(frozen=True)
class Mapping:
    """A mapping.

    Attributes:
        first: Its first address.
        last: The address behind it.
        identity: Number of the file system, and of the file there; that is 0 where there is none.
        offset: Where in the file it begins.
        path: Of the file, if it has one; of other mappings what they are called.
    """

    first: int
    last: int
    readable: bool
    writable: bool
    shared: bool
    offset: int
    identity: tuple[int, int]
    path: str

    @property
    def is_of_a_file(self) -> bool:
        """Whether there is a file behind it, and be it one without a name."""
        return self.identity[1] != 0

    @property
    def bounds(self) -> str:
        """The name of an entry in /proc/PID/map_files."""
        return f"{self.first:x}-{self.last:x}"


def mappings_from(task: int, address: int) -> Iterator[Mapping]:
    """The mappings of a task that end behind an address, in order.

    A task may have thousands: where the kernel can be asked, those before are not looked at.
    """
    with open(f"/proc/{task}/maps", "rb") as maps:
        try:
            found = _ask(maps.fileno(), address)
        except OSError as error:
            if error.errno != errno.ENOTTY:
                raise
            yield from _read(maps, address)
            return
        while found is not None:
            yield found
            found = _ask(maps.fileno(), found.last)


def _ask(maps: int, address: int) -> Mapping | None:
    """The first mapping that ends behind an address, by ioctl(2); ENOTTY, before Linux 6.11."""
    name = ctypes.create_string_buffer(_LONGEST_NAME)
    for room in (_LONGEST_NAME, 0):
        query = _Query(
            size=ctypes.sizeof(_Query),
            flags=_COVERING_OR_NEXT,
            address=address,
            name_size=room,
            name_at=ctypes.addressof(name) if room else 0,
        )
        try:
            fcntl.ioctl(maps, _QUERY, query)
            break
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ESRCH):
                return None  # There is nothing; or nobody any more.
            # Of a file so deep that no path names it, all but the name can be told.
            if error.errno != errno.ENAMETOOLONG or not room:
                raise
    return Mapping(
        query.first,
        query.last,
        bool(query.rights & _READABLE),
        bool(query.rights & _WRITABLE),
        bool(query.rights & _SHARED),
        query.offset,
        (os.makedev(query.major, query.minor), query.inode),
        os.fsdecode(name.value) if query.name_size else "",
    )


def _read(maps: Iterator[bytes], address: int) -> Iterator[Mapping]:
    """The same by reading all lines."""
    for line in maps:
        bounds, rest = line.split(b" ", 1)
        first, last = (int(bound, 16) for bound in bounds.split(b"-"))
        if last <= address:
            continue
        rights, offset, device, inode, *name = rest.split(maxsplit=4)
        major, minor = (int(number, 16) for number in device.split(b":"))
        yield Mapping(
            first,
            last,
            rights[0:1] == b"r",
            rights[1:2] == b"w",
            rights[3:4] == b"s",
            int(offset, 16),
            (os.makedev(major, minor), int(inode)),
            os.fsdecode(name[0].rstrip(b"\n")) if name else "",
        )
