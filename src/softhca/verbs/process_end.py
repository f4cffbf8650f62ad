"""The end of a process: of a worker of multiprocessing, and under threads that still wait.

A forked worker does not run the handlers of atexit.
"""

from __future__ import annotations

import os
import sys
import threading
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


def excuse_daemons(kind: type[Exception]) -> None:
    """Has no traceback printed of `kind` where it ends a daemon thread from now on.

    The end of the process closes what such a thread waits on. Python stops these threads without a
    word, and what it closed under them is no mistake of theirs. Who has a hook of his own hears of
    it all the same.
    """
    if threading.excepthook is not threading.__excepthook__:
        return

    def hook(ended: threading.ExceptHookArgs) -> None:
        daemon = ended.thread is not None and ended.thread.daemon
        if not (daemon and issubclass(ended.exc_type, kind)):
            threading.__excepthook__(ended)

    threading.excepthook = hook
