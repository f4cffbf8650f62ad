"""The end of a worker of multiprocessing: a forked one does not run the handlers of atexit."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

_heeded = 0  # The process whose end is heeded.


def at_end_of_worker(function: Callable[[], None]) -> None:
    """Has `function` called when this process ends, if it is a worker; once for each process."""
    global _heeded
    if "multiprocessing.util" not in sys.modules or _heeded == os.getpid():
        return
    from multiprocessing import parent_process, util

    if parent_process() is not None:
        _heeded = os.getpid()
        util.Finalize(None, function, exitpriority=0)
