"""Numbers that our descriptors have in programs.

They lie in one range, so that the filter asks about few descriptors that are not ours: below the
number of descriptors that a program may have, and below what select(2) can hold.
"""

from __future__ import annotations

import errno
import os
import resource

from softhca.uabi.commands.call import refused

_COUNT = 128
_SELECTABLE = 1024


def descriptor_range() -> tuple[int, int]:
    """The first and the last number, for programs with the limits of this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    end = _SELECTABLE if soft == resource.RLIM_INFINITY else min(soft, _SELECTABLE)
    return max(end // 2, end - _COUNT), end - 1


def free_number(task: int, numbers: tuple[int, int], least: int = 0) -> int:
    """A number of the range that a program does not use, and no less than `least`.

    Raises:
        OSError: EINVAL, if `least` is beyond the range; EMFILE, if none is free.
    """
    first, last = numbers
    if least > last:
        raise refused(errno.EINVAL, f"descriptor {least}")
    for number in range(max(first, least), last + 1):
        if not os.path.lexists(f"/proc/{task}/fd/{number}"):
            return number
    raise refused(errno.EMFILE)
