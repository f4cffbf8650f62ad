"""What a notice says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class InvalidationKind(IntEnum):
    """How the mapping behind a region changed.

    The numbers are those of UFFD_EVENT_* in <linux/userfaultfd.h>.

    Attributes:
        REMAP: mremap moved it away.
        REMOVE: madvise dropped its content: MADV_DONTNEED, MADV_REMOVE, MADV_FREE.
        UNMAP: It was unmapped, by munmap or brk, or a mapping was put over it.
    """

    REMAP = 0x14
    REMOVE = 0x15
    UNMAP = 0x16


@dataclass(frozen=True, slots=True)
class InvalidationEvent:
    """A range of a region that is gone; accesses to it fail until it is registered again.

    Unread notices of one region and kind that lie in one piece are one event. Each byte of a region
    goes once: what happens to a range that is gone already is not told.

    Attributes:
        cookie: What `reg_mr` was given.
        kind: How it went.
        addr: Address of its first byte in this process.
        length: Bytes.
        offset: Of its first byte in the region.
        count: Notices that became this event; their sum is what `mr.dereg()` returns.
        exact: False if the range covers more than what changed: more than 8 pieces were unread, or
            the region was torn into more than 4096.
    """

    cookie: int
    kind: InvalidationKind
    addr: int
    length: int
    offset: int
    count: int
    exact: bool
