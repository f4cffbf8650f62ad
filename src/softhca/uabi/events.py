"""Pipes by which programs hear of events.

They are plain pipes, so that read, poll and epoll of programs are the kernel's business. Destroying
an object tells the program how many of its events were *read*, for which the library then waits to
be acknowledged; those that were not are taken back.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress

from softhca.uabi.layout import Layout


class EventPipe:
    """Records of one layout, each about one thing.

    Attributes:
        for_program: The end to give to a program; closed once it is given.
        descriptor: The end that is written to.
    """

    def __init__(self, layout: Layout, subject: str) -> None:
        self._layout = layout
        self._subject = subject
        self.for_program, self.descriptor = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.descriptor, False)
        # An end of our own, to take records back by. Its O_NONBLOCK is not the program's.
        self._reader = os.open(
            f"/proc/self/fd/{self.descriptor}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        )
        self._written: Counter[int] = Counter()

    def given(self) -> None:
        """Forgets the end that the program has by now."""
        os.close(self.for_program)
        self.for_program = -1

    def put(self, **record: int) -> None:
        """Writes a record. One too many is lost, as of everybody who does not read."""
        with suppress(BlockingIOError):
            os.write(self.descriptor, self._layout.pack(record))
            self._written[record[self._subject]] += 1

    def count_written(self, subject: int, count: int) -> None:
        """Counts records that somebody else wrote to the pipe."""
        self._written[subject] += count

    def forget(self, subject: int) -> int:
        """Takes back what is unread about a subject; returns how many records were read."""
        written = self._written.pop(subject, 0)
        if not written:
            return 0
        kept = []
        with suppress(BlockingIOError):
            while octets := os.read(self._reader, self._layout.size):
                if self._layout.unpack(octets)[self._subject] == subject:
                    written -= 1
                else:
                    kept.append(octets)
        for octets in kept:
            with suppress(BlockingIOError):
                os.write(self.descriptor, octets)
        return max(0, written)

    def close(self) -> None:
        """Closes our ends: the program reads what is left, and then the end."""
        for descriptor in (self.for_program, self.descriptor, self._reader):
            if descriptor >= 0:
                os.close(descriptor)
