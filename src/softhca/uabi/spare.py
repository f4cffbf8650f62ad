"""A descriptor for when there are none left: who gives something back must not need to wait."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_spare = -1


def keep_one() -> None:
    """Keeps a descriptor that can be given up, if it is not kept yet and there is one."""
    global _spare
    if _spare < 0:
        with suppress(OSError):
            _spare = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)


@contextmanager
def room_for_one() -> Iterator[None]:
    """Sees to it that a descriptor is to be had meanwhile."""
    global _spare
    try:
        os.close(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        if error.errno != errno.EMFILE or _spare < 0:
            raise
        os.close(_spare)
        _spare = -1
    try:
        yield
    finally:
        keep_one()
