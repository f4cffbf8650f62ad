"""The thread that hears what the kernel asks about a program."""

from __future__ import annotations

import os
import select
import socket
from pathlib import Path

from softhca._adapter import Known, Listener


def threads() -> set[str]:
    """Numbers of this process's threads."""
    return set(os.listdir("/proc/self/task"))


def has_run_long(thread: str) -> bool:
    """Whether a thread is there, and has used the processor for longer than one look takes."""
    try:
        fields = Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return int(fields[11]) + int(fields[12]) >= 2  # Ticks.


def test_it_goes_on_where_the_kernel_was_interrupted() -> None:
    """poll(2) says POLLERR then, of a listener of seccomp; here a socket says it all the time."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as nobody:
            nobody.bind(("127.0.0.1", 0))
            asked.connect(nobody.getsockname())
        asked.send(b"refused")
        watched = select.poll()
        watched.register(asked, 0)
        assert watched.poll(60_000) == [(asked.fileno(), select.POLLERR)]
        before = threads()
        listener = Listener(os.dup(asked.fileno()), Known())
        listener.start()
        new = threads() - before
        # It looks again and again, unless it has ended.
        while not listener.is_over and not any(map(has_run_long, new)):
            pass
        assert not listener.is_over
        listener.stop()
