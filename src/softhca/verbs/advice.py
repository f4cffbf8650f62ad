"""Advice to the kernel about memory that is registered."""

from __future__ import annotations

from enum import IntEnum

from softhca import _adapter
from softhca.verbs.checks import unsigned
from softhca.verbs.mr import exported


class Advice(IntEnum):
    """What madvise(2) may be told at a registration; the numbers are MADV_* of <sys/mman.h>.

    Advice that brings pages in is given for all pages that a buffer touches; the rest for those
    that lie wholly in it, since its neighbours would be concerned.

    Attributes:
        NORMAL: Nothing in particular.
        RANDOM: Do not read ahead.
        SEQUENTIAL: Read far ahead.
        WILLNEED: Bring file pages in soon.
        DONTFORK: Children do not have it, and copy nothing on write.
        DOFORK: Undoes DONTFORK.
        HUGEPAGE: Large pages, where they may be had.
        NOHUGEPAGE: No large pages.
        DONTDUMP: Leave it out of core dumps.
        DODUMP: Undoes DONTDUMP.
        POPULATE_READ: Bring all pages in now, as if they were read.
        POPULATE_WRITE: Bring all pages in now, as if they were written.
    """

    NORMAL = 0
    RANDOM = 1
    SEQUENTIAL = 2
    WILLNEED = 3
    DONTFORK = 10
    DOFORK = 11
    HUGEPAGE = 14
    NOHUGEPAGE = 15
    DONTDUMP = 16
    DODUMP = 17
    POPULATE_READ = 22
    POPULATE_WRITE = 23


def advise(obj: object, advice: int) -> None:
    """Advises about the memory of a buffer.

    Raises:
        VerbsError: EINVAL, for advice that would lose content; what madvise raises.
    """
    export, address, length, _ = exported(obj)
    try:
        _adapter.advise_memory(address, length, unsigned("advice", advice, 32))
    finally:
        export.release()
