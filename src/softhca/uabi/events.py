"""Asynchronous events of programs.

They come through a plain pipe, so that read, poll and epoll of programs are the kernel's business.
Destroying an object tells the program how many of its events were *read*, for which the library
then waits to be acknowledged; those that were not are taken back.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress

from softhca.uabi.deserted import has_no_reader
from softhca.uabi.structures import ASYNC_EVENT


class AsyncPipe:
    """A pipe whose reading end a program has.

    Attributes:
        for_program: That end; -1 once it is given.
        inode: By which a descriptor of the program is recognised.
    """

    def __init__(self) -> None:
        self.for_program, self._writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._writer, False)
        self.inode = os.fstat(self._writer).st_ino
        self._written: Counter[int] = Counter()

    def given(self) -> None:
        """Forgets the end that the program has by now."""
        os.close(self.for_program)
        self.for_program = -1

    def put(self, event_type: int, element: int) -> None:
        """Writes a record. One too many is lost, as of everybody who does not read."""
        record = ASYNC_EVENT.pack({"event_type": event_type, "element": element})
        if self._writer >= 0 and self._write(record):
            self._written[element] += 1

    def _write(self, record: bytes) -> bool:
        with suppress(BlockingIOError, BrokenPipeError):
            return os.write(self._writer, record) == len(record)
        return False

    def forget(self, element: int) -> int:
        """Takes back what is unread about an element; returns how many records were read."""
        written = self._written.pop(element, 0)
        if not written or self._writer < 0:
            return written
        kept = []
        for record in self._take_unread():
            if ASYNC_EVENT.unpack(record).element == element:
                written -= 1
            else:
                kept.append(record)
        for record in kept:
            self._write(record)
        return max(0, written)

    def _take_unread(self) -> list[bytes]:
        """Takes everything back that nobody has read."""
        reader = os.open(
            f"/proc/self/fd/{self._writer}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        )
        unread = []
        with suppress(BlockingIOError):
            while record := os.read(reader, ASYNC_EVENT.size):
                unread.append(record)
        os.close(reader)
        return unread

    @property
    def is_deserted(self) -> bool:
        """Whether nobody has the reading end any more."""
        return has_no_reader(self._writer)

    def desert(self) -> None:
        """Keeps of a deserted pipe how many records were read, and no descriptor."""
        for record in self._take_unread():
            self._written[ASYNC_EVENT.unpack(record).element] -= 1
        self.close()

    def close(self) -> None:
        """Closes our ends: the program reads what is left, and then the end."""
        for descriptor in (self.for_program, self._writer):
            if descriptor >= 0:
                os.close(descriptor)
        self.for_program = self._writer = -1
