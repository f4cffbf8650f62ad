"""Asynchronous events of programs.

They come through a plain pipe, so that read, poll and epoll of programs are the kernel's business.
Destroying an object tells the program how many of its events were *read*, for which the library
then waits to be acknowledged; those that were not are taken back.
"""

from __future__ import annotations

import fcntl
import os
from collections import Counter
from contextlib import suppress

from softhca.uabi.deserted import has_no_reader
from softhca.uabi.spare import keep_one, room_for_one
from softhca.uabi.structures import ASYNC_EVENT

# As large as an unprivileged process may make one pipe.
_MOST_PIPE_BYTES = 1 << 20


def _element_of(record: bytes) -> int:
    """What an event is about: the first field, of many records more quickly than by unpack()."""
    return int.from_bytes(record[:8], "little")


class AsyncPipe:
    """A pipe whose reading end a program has.

    Attributes:
        for_program: That end; -1 once it is given.
        inode: By which a descriptor of the program is recognised.
    """

    def __init__(self) -> None:
        keep_one()
        self.for_program, self._writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._writer, False)
        self.inode = os.fstat(self._writer).st_ino
        self._written: Counter[int] = Counter()

    def given(self) -> None:
        """Forgets the end that the program has by now."""
        os.close(self.for_program)
        self.for_program = -1

    def put(self, event_type: int, element: int) -> None:
        """Writes a record. Of somebody who reads none, what no pipe can hold is lost."""
        record = ASYNC_EVENT.pack({"event_type": event_type, "element": element})
        if self._writer >= 0 and self._write(record):
            self._written[element] += 1

    def _write(self, record: bytes) -> bool:
        with suppress(BrokenPipeError):
            while True:
                try:
                    return os.write(self._writer, record) == len(record)
                except BlockingIOError:
                    if not self._grow():
                        return False
        return False

    def _grow(self) -> bool:
        """Makes a full pipe twice as large; whether that could be done."""
        octets = fcntl.fcntl(self._writer, fcntl.F_GETPIPE_SZ)
        with suppress(PermissionError):  # Its user has many large ones.
            if octets < _MOST_PIPE_BYTES:
                return fcntl.fcntl(self._writer, fcntl.F_SETPIPE_SZ, 2 * octets) > octets
        return False

    def forget(self, element: int) -> int:
        """Takes back what is unread about an element; returns how many records were read."""
        written = self._written.pop(element, 0)
        if not written or self._writer < 0:
            return written
        unread = self._take_unread()
        others = [record for record in unread if _element_of(record) != element]
        try:
            os.write(self._writer, b"".join(others))  # The pipe has held them already.
        except BrokenPipeError:
            self._written.subtract(map(_element_of, others))
        return max(0, written - (len(unread) - len(others)))

    def _take_unread(self) -> list[bytes]:
        """Takes back all records that nobody has read."""
        unread = b""
        with room_for_one():
            reader = os.open(
                f"/proc/self/fd/{self._writer}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
            )
            with suppress(BlockingIOError):
                unread = os.read(reader, _MOST_PIPE_BYTES)
            os.close(reader)
        size = ASYNC_EVENT.size
        return [unread[at : at + size] for at in range(0, len(unread), size)]

    @property
    def is_deserted(self) -> bool:
        """Whether nobody has the reading end any more."""
        return has_no_reader(self._writer)

    def desert(self) -> None:
        """Keeps of a deserted pipe how many records were read, and no descriptor."""
        self._written.subtract(map(_element_of, self._take_unread()))
        self.close()

    def close(self) -> None:
        """Closes our ends: the program reads what is left, and then the end."""
        for descriptor in (self.for_program, self._writer):
            if descriptor >= 0:
                os.close(descriptor)
        self.for_program = self._writer = -1
