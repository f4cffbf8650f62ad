"""Memory that is made to be registered."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from softhca import _adapter
from softhca.verbs.checks import unsigned
from softhca.verbs.errors import VerbsError
from softhca.verbs.mr import MR, WRITABLE_ACCESS, address_for

if TYPE_CHECKING:
    from softhca.verbs.pd import PD

_MEMINFO = "/proc/meminfo"


class MRBuffer(MR):
    """A region with memory of its own. `pd.alloc_mr_buffer()` makes it.

    The memory begins at a page boundary, is filled with zeros, and lies in a file without a name: a
    peer process of the same host that was given the descriptor maps the same bytes, by
    `mmap.mmap(fd, mr.mapped_length)`.

    Attributes:
        buffer: The mapping; `memoryview(mr.buffer)` and NumPy's `frombuffer` take it.
        fd: The descriptor of the memory; it closes with the region and is -1 then, duplicates of it
            stay. The file is sealed: nobody can make it shorter.
        mapped_length: Bytes of the file: the length, up to the end of its last page.
        page_bytes: Bytes of a page: those of a huge page, such as 2 MiB, where the system had huge
            pages reserved. Elsewhere it is asked to put large ones under the memory of its own
            accord.
    """

    __slots__ = ("buffer", "fd", "mapped_length", "page_bytes")

    def __init__(
        self, pd: PD, size: int, access: int | None = None, *, huge_pages: bool = True
    ) -> None:
        length = unsigned("size", size, 63)
        if length == 0:
            raise VerbsError(errno.EINVAL, "size", size, "must be 1 or more")
        rights = int(WRITABLE_ACCESS) if access is None else unsigned("access", access, 32)
        self.fd: int
        self.buffer: mmap.mmap
        self.page_bytes: int
        self.fd, self.buffer, self.page_bytes = _map(length, huge_pages)
        self.mapped_length: int = len(self.buffer)
        export = memoryview(self.buffer)
        try:
            address = _adapter.buffer_address(export)
            _adapter.share_buffer(address, self.mapped_length, self.fd)
            first = address_for(pd, address, length)
            super().__init__(pd, self.buffer, export, address, length, first, rights)
        except BaseException:
            _adapter.unshare_buffer(self.fd)
            export.release()
            self.buffer.close()
            os.close(self.fd)
            raise

    def _forget(self) -> None:
        already = self._closed
        super()._forget()
        if not already:
            # None may take a number that is somebody else's by now.
            fd, self.fd = self.fd, -1
            _adapter.unshare_buffer(fd)
            os.close(fd)
            with suppress(BufferError):  # Somebody still looks at it, and keeps it mapped.
                self.buffer.close()


def huge_page_bytes(meminfo: str) -> int:
    """Bytes of the huge pages that are the system's usual ones; 0 if it has none.

    2 MiB on most systems; more where ordinary pages are larger, as on arm64, or by the parameter
    default_hugepagesz of the kernel.
    """
    with suppress(OSError), open(meminfo) as lines:
        for line in lines:
            name, _, value = line.partition(":")
            if name == "Hugepagesize":
                return int(value.split()[0]) << 10
    return 0


def _map(length: int, huge_pages: bool) -> tuple[int, mmap.mmap, int]:
    if huge_pages and 0 < (huge := huge_page_bytes(_MEMINFO)) <= length:
        with suppress(OSError):  # None are reserved, or not enough.
            return _map_file(length, huge, os.MFD_HUGETLB)
    fd, mapping, page_bytes = _map_file(length, mmap.PAGESIZE, 0)
    if huge_pages:
        with suppress(OSError):
            mapping.madvise(mmap.MADV_HUGEPAGE)
    return fd, mapping, page_bytes


def _map_file(length: int, page_bytes: int, flags: int) -> tuple[int, mmap.mmap, int]:
    fd = -1
    try:
        fd = os.memfd_create("softhca-buffer", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | flags)
        whole = -(-length // page_bytes) * page_bytes
        os.ftruncate(fd, whole)
        if flags & os.MFD_HUGETLB:
            # A container may have a limit of its own on huge pages, often 0, of which mmap(2) does
            # not know: the first byte that is written would be a SIGBUS.
            os.posix_fallocate(fd, 0, whole)
        # Whoever has the descriptor could cut the memory off under us.
        with suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        return fd, mmap.mmap(fd, whole), page_bytes
    except (OSError, OverflowError, ValueError) as error:
        if fd >= 0:
            os.close(fd)
        number = getattr(error, "errno", None) or errno.ENOMEM
        raise VerbsError(number, "size", length, "bytes cannot be mapped") from None
