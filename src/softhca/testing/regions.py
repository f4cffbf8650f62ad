"""What memory the keys of a host stand for, as its programs registered it."""

from __future__ import annotations

import ctypes
import errno
import mmap
from collections.abc import Iterator
from typing import Any

from softhca.verbs.device import Device
from softhca.verbs.mr import MR, Sge

_MS_ASYNC = 1
_libc = ctypes.CDLL(None, use_errno=True)
_libc.msync.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def is_there(address: int, length: int) -> bool:
    """Whether all pages of a range of this process are mapped."""
    first = address - address % mmap.PAGESIZE
    if length == 0 or _libc.msync(first, address + length - first, _MS_ASYNC) == 0:
        return True
    return ctypes.get_errno() != errno.ENOMEM


def bytes_of(part: Any) -> memoryview | None:
    """The bytes of a region or of a part of one; None if nobody says what they are."""
    if isinstance(part, MR):
        mr, start, length = part, 0, part.length
    elif isinstance(part, Sge) and part.mr is not None:
        mr, start, length = part.mr, part.addr - part.mr.addr, part.length
    else:
        return None
    if mr.obj is None:
        return None  # Registered by address.
    held: Any = mr.obj
    return memoryview(held).cast("B")[start : start + length]


def is_mapped(part: Any) -> bool:
    """Whether the region of a buffer still holds it."""
    mr = part.mr if isinstance(part, Sge) else part
    return mr is not None and mr.obj is not None


class Regions:
    """Regions of a device: those that programs hold, and those that they register from now on."""

    def __init__(self, device: Device) -> None:
        # By key: where it lies in this process, what the key calls it, and its length.
        self._regions: dict[int, tuple[int, int, int]] = {}
        self._told: set[int] = set()
        hca: Any = device.adapter
        reg_mr = hca.reg_mr

        def registering(pd: int, address: int, length: int, iova: int, access: int) -> Any:
            info = reg_mr(pd, address, length, iova, access)
            self._regions[info.handle] = (address, iova, length)
            return info

        hca.reg_mr = registering
        waiting: list[Any] = [device]
        while waiting:
            one = waiting.pop()
            waiting.extend(one._live_children())
            if type(one) is MR and one._address is not None:
                self._regions[one.handle] = (one._address, one.addr, one.length)

    def gone(self, handle: int) -> None:
        """A region was deregistered."""
        self._regions.pop(handle, None)

    def place_of(self, key: int, address: int) -> int | None:
        """Where in this process a byte lies that a key calls so; None if the key is not known."""
        region = self._regions.get(key)
        return None if region is None else region[0] + address - region[1]

    def place_of_part(self, part: Any) -> int | None:
        """Where a part of a region begins."""
        mr = part.mr if isinstance(part, Sge) else part
        return None if mr is None else self.place_of(mr.handle, part.addr)

    def unmapped(self) -> Iterator[str]:
        """Regions whose memory is gone, each once."""
        for key, (address, _, length) in self._regions.items():
            if key not in self._told and not is_there(address, length):
                self._told.add(key)
                yield f"the region of key {key:#x}, {length} bytes at {address:#x},"
