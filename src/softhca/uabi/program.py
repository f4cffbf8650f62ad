"""A program that a supervisor started."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import struct
from contextlib import suppress

# struct GuardianReport: what happened, to which process, and its status.
_REPORT = struct.Struct("<iii")
_ENDED = 1


class Program:
    """A process of ours, and everything that it starts.

    Attributes:
        process: Its number.
        status: How it ended: an exit status, or a signal's number, negative. None while it runs.
    """

    def __init__(
        self, process: int, guardian: int, descriptor: int, selector: selectors.BaseSelector
    ) -> None:
        self.process = process
        self.status: int | None = None
        self._guardian = guardian
        self._socket = socket.socket(fileno=descriptor)
        self._selector = selector
        selector.register(self._socket, selectors.EVENT_READ, self._hear)

    def _hear(self) -> None:
        report = self._socket.recv(_REPORT.size)
        if len(report) == _REPORT.size:
            kind, _, status = _REPORT.unpack(report)
            if kind == _ENDED:
                self.status = os.waitstatus_to_exitcode(status)
        else:  # Somebody killed the guardian, and the kernel killed the program for it.
            self.status = -signal.SIGKILL if self.status is None else self.status
            self._selector.unregister(self._socket)

    def signal(self, number: int) -> None:
        """Sends a signal, if the program still runs."""
        if self.status is None:
            with suppress(ProcessLookupError):
                os.kill(self.process, number)

    def close(self) -> None:
        """Kills what still runs of it, and waits until that is gone."""
        if self._socket.fileno() < 0:
            return
        with suppress(KeyError):
            self._selector.unregister(self._socket)
        with suppress(OSError):
            self._socket.send(b"-")
        self._socket.close()
        with suppress(ChildProcessError):
            os.waitpid(self._guardian, 0)
