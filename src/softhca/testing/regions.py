"""What memory the keys of a host stand for, as its programs registered it."""

from __future__ import annotations

import ctypes
import errno
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from softhca.verbs.device import Device
from softhca.verbs.fast_mr import FastMR
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


@dataclass(frozen=True)
class _Region:
    address: int  # In this process.
    first: int  # What the key calls it.
    length: int
    key: int
    has_notices: bool = False  # Its memory may go, and that is told.


class Regions:
    """Regions of a device: those that programs hold, and those that they register from now on."""

    def __init__(self, device: Device) -> None:
        self._regions: dict[int, _Region] = {}  # By handle.
        self._by_key: dict[int, _Region] = {}  # Windows too.
        self._told: set[int] = set()
        hca: Any = device.adapter
        reg_mr, reg_watched_mr, rereg_mr = hca.reg_mr, hca.reg_watched_mr, hca.rereg_mr

        def registering(pd: int, address: int, length: int, iova: int, access: int) -> Any:
            info = reg_mr(pd, address, length, iova, access)
            self._put(info.handle, _Region(address, iova, length, info.lkey))
            return info

        def watching(pd: int, address: int, length: int, iova: int, access: int, watch: Any) -> Any:
            info = reg_watched_mr(pd, address, length, iova, access, watch)
            self._put(info.handle, _Region(address, iova, length, info.lkey, has_notices=True))
            return info

        def moving(
            mr: int, flags: int, pd: int, address: int, length: int, iova: int, access: int
        ) -> Any:
            info = rereg_mr(mr, flags, pd, address, length, iova, access)
            before = self._regions.get(mr)
            if before is not None:
                self.gone(mr)
                notices = before.has_notices
                self._put(mr, _Region(address, iova, length, info.lkey, notices))
            return info

        hca.reg_mr, hca.reg_watched_mr, hca.rereg_mr = registering, watching, moving
        waiting: list[Any] = [device]
        while waiting:
            one = waiting.pop()
            waiting.extend(one._live_children())
            if isinstance(one, MR) and not isinstance(one, FastMR) and one._address is not None:
                notices = one._watch is not None
                region = _Region(one._address, one.addr, one.length, one.lkey, notices)
                self._put(one.handle, region)

    def _put(self, handle: int, region: _Region) -> None:
        self._regions[handle] = self._by_key[region.key] = region
        self._told.discard(handle)

    def gone(self, handle: int) -> None:
        """A region was deregistered."""
        region = self._regions.pop(handle, None)
        if region is not None:
            self._by_key.pop(region.key, None)

    def lend(self, key: int, first: int, length: int, of: int, address: int) -> None:
        """A window is bound, or about to be.

        Args:
            key: Its key.
            first: What that calls its first byte.
            length: Bytes.
            of: Key of the region.
            address: What that calls the same byte.
        """
        place = self.place_of(of, address)
        if place is not None:
            self._by_key[key] = _Region(place, first, length, key)

    def key_of(self, handle: int) -> int:
        """Key of a region by its handle, which is its first key."""
        region = self._regions.get(handle)
        return handle if region is None else region.key

    def place_of(self, key: int, address: int) -> int | None:
        """Where in this process a byte lies that a key calls so; None if the key is not known."""
        region = self._by_key.get(key)
        return None if region is None else region.address + address - region.first

    def place_of_part(self, part: Any) -> int | None:
        """Where a part of a region begins."""
        mr = part.mr if isinstance(part, Sge) else part
        region = None if mr is None else self._regions.get(mr.handle)
        return None if region is None else region.address + part.addr - region.first

    def unmapped(self) -> Iterator[str]:
        """Regions whose memory is gone, each once."""
        for handle, region in self._regions.items():
            if handle in self._told or region.has_notices:
                continue
            if not is_there(region.address, region.length):
                self._told.add(handle)
                yield (
                    f"the region of key {region.key:#x}, {region.length} bytes at "
                    f"{region.address:#x},"
                )
