"""The file behind the descriptor that a program gets for a device."""

from __future__ import annotations

import fcntl
import os
from bisect import insort

# Of one opened device; pages that nobody wrote cost nothing.
_BYTES = 64 << 30
_PAGE = 65536  # The largest page of any architecture: offsets must be multiples of it.
# Doorbells are written at the file's position. Above this offset no queue lies.
QUEUES_END = 32 << 30

_F_ADD_SEALS = 1033
_SEAL_SEAL, _SEAL_SHRINK, _SEAL_GROW = 1, 2, 4


class DeviceFile:
    """A sparse file that programs map their queues from.

    It is sealed against changes of its size, by which a program could make us fault. Programs get a
    description that was opened anew: the kernel tells us when it is closed.

    Attributes:
        descriptor: Ours.
        inode: By which the file is recognised.
        file_system: The device number of the file system that the inode is of.
    """

    def __init__(self, name: str) -> None:
        self.descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.descriptor, _BYTES)
        fcntl.fcntl(self.descriptor, _F_ADD_SEALS, _SEAL_SEAL | _SEAL_SHRINK | _SEAL_GROW)
        status = os.fstat(self.descriptor)
        self.inode = status.st_ino
        self.file_system = status.st_dev
        self._free: list[tuple[int, int]] = [(0, QUEUES_END)]

    def open_again(self) -> int:
        """A description for programs."""
        flags = os.O_RDWR | os.O_CLOEXEC
        return os.open(f"/proc/self/fd/{self.descriptor}", flags)

    def reserve(self, length: int) -> int:
        """Returns the offset of a range that nobody uses, whole pages long; ENOMEM."""
        length = _whole_pages(length)
        for index, (offset, free) in enumerate(self._free):
            if free >= length:
                del self._free[index]
                if free > length:
                    self._free.insert(index, (offset + length, free - length))
                return offset
        raise MemoryError("no room for another queue")

    def release(self, offset: int, length: int) -> None:
        """Gives a range back, and its memory to the system."""
        length = _whole_pages(length)
        keep_size, punch_hole = 1, 2
        _fallocate(self.descriptor, keep_size | punch_hole, offset, length)
        insort(self._free, (offset, length))
        merged: list[tuple[int, int]] = []
        for start, free in self._free:
            if merged and merged[-1][0] + merged[-1][1] == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + free)
            else:
                merged.append((start, free))
        self._free = merged

    def close(self) -> None:
        """Gives our descriptor back."""
        os.close(self.descriptor)


def _whole_pages(length: int) -> int:
    return -(-length // _PAGE) * _PAGE


def _fallocate(descriptor: int, mode: int, offset: int, length: int) -> None:
    """fallocate(2), which `os` has without a mode."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    call = libc.fallocate
    call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    if call(descriptor, mode, offset, length) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
