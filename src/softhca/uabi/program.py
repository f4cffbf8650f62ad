"""A program that a supervisor started."""

from __future__ import annotations

import os
import selectors


class Program:
    """A process of ours.

    Attributes:
        process: Its number.
        status: How it ended: an exit status, or a signal's number, negative. None while it runs.
    """

    def __init__(self, process: int, selector: selectors.BaseSelector) -> None:
        self.process = process
        self.status: int | None = None
        self._descriptor = os.pidfd_open(process)
        self._selector = selector
        selector.register(self._descriptor, selectors.EVENT_READ, self._ended)

    def _ended(self) -> None:
        _, status = os.waitpid(self.process, 0)
        self.status = os.waitstatus_to_exitcode(status)
        self._selector.unregister(self._descriptor)
        os.close(self._descriptor)
