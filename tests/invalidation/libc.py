"""Calls of the C library that change mappings, and mappings to change."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager

PAGE = mmap.PAGESIZE
# More than a heap ever has at hand, however much was freed before: malloc maps it, and unmaps it
# when it is freed.
LARGE = 1 << 30

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int),
    *(ctypes.c_int, ctypes.c_int, ctypes.c_long),
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.mremap.restype = ctypes.c_void_p
_libc.mremap.argtypes = [
    *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t),
    *(ctypes.c_int, ctypes.c_void_p),
]
_libc.malloc.restype = ctypes.c_void_p
_libc.malloc.argtypes = [ctypes.c_size_t]
_libc.free.argtypes = [ctypes.c_void_p]

MAP_FIXED = 0x10
_PROT_NONE = 0
MREMAP_MAYMOVE = 1
MREMAP_FIXED = 2
MREMAP_DONTUNMAP = 4
_FAILED = ctypes.c_void_p(-1).value


def _checked(result: int | None) -> int:
    if result is None or result in (_FAILED, -1):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def map_pages(
    pages: int,
    *,
    at: int = 0,
    flags: int = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
    fd: int = -1,
    prot: int = mmap.PROT_READ | mmap.PROT_WRITE,
) -> int:
    """Maps pages, over what is there if `at` is given, and returns their address."""
    fixed = MAP_FIXED if at else 0
    return _checked(_libc.mmap(at or None, pages * PAGE, prot, flags | fixed, fd, 0))


def forbid(address: int, length: int) -> None:
    """Takes pages away as unmapping them does, but lets nobody else have their addresses."""
    map_pages(length // PAGE, at=address, prot=_PROT_NONE)


def unmap(address: int, length: int) -> None:
    """Unmaps a range (munmap)."""
    _checked(_libc.munmap(address, length))


def advise(address: int, length: int, advice: int) -> None:
    """Advises the kernel (madvise)."""
    _checked(_libc.madvise(address, length, advice))


def remap(
    address: int, length: int, to_length: int, flags: int = MREMAP_MAYMOVE, to: int = 0
) -> int:
    """Moves or resizes a mapping (mremap), with MREMAP_FIXED to `to`, and returns its address."""
    return _checked(_libc.mremap(address, length, to_length, flags, to))


def allocate(size: int) -> int:
    """Allocates on the heap (malloc)."""
    return _checked(_libc.malloc(size))


def free(address: int) -> None:
    """Gives it back (free)."""
    _libc.free(address)


@contextmanager
def pages(count: int) -> Iterator[int]:
    """Maps anonymous pages, which stay when the test is done.

    What it unmapped may be somebody else's by then, and would be unmapped under him.
    """
    yield map_pages(count)
