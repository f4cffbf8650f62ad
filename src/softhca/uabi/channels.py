"""Completion channels of programs."""

from __future__ import annotations

import os

from softhca._adapter import EventPipe
from softhca.uabi.commands.call import refused
from softhca.uabi.deserted import has_no_reader
from softhca.uabi.spare import keep_one, room_for_one


class Channel:
    """A pipe whose reading end a program has.

    Attributes:
        events: Writes the events.
        inode: By which a descriptor of the program is recognised.
    """

    def __init__(self) -> None:
        keep_one()
        self.for_program, self._writer = os.pipe2(os.O_CLOEXEC)
        self.events = EventPipe(self._writer)
        if self.events.error:
            self.close()
            raise refused(self.events.error, "a channel")
        self.inode = os.fstat(self._writer).st_ino

    def given(self) -> None:
        """Forgets the end that the program has by now."""
        os.close(self.for_program)
        self.for_program = -1

    def forget(self, user_handle: int) -> int:
        """Takes back the unread events of a queue; returns how many were read."""
        with room_for_one():
            return self.events.forget(user_handle)

    @property
    def is_deserted(self) -> bool:
        """Whether nobody has the reading end any more."""
        return has_no_reader(self._writer)

    def close(self) -> None:
        """Closes our ends. That of `events` goes with the last queue that has the channel."""
        for descriptor in (self.for_program, self._writer):
            if descriptor >= 0:
                os.close(descriptor)
        self.for_program = self._writer = -1
