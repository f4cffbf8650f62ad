"""Numbers that our descriptors have in programs.

They lie in ranges, so that the filter asks about few descriptors that are not ours: many numbers
below the number of descriptors that a program may have, and below what select(2) can hold; a few
for programs that are given a lower limit later; and a few below each power of two beyond, for
programs that have so many files open that nothing else is free.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Sequence

from softhca.uabi.commands.call import refused

Range = tuple[int, int]  # The first and the last number.

_COUNT = 128
_SELECTABLE = 1024
_LOW = (224, 255)
_FEW = 32
_MOST_DESCRIPTORS = 1 << 20


def raise_own_limit() -> int:
    """Lets this process have as many descriptors as it may; returns how many it had a right to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft


def descriptor_ranges(limit: int = 0) -> list[Range]:
    """The ranges, for programs with this limit; the first is to be preferred.

    Args:
        limit: By default (0) this process's.
    """
    own, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = limit or own
    end = _SELECTABLE if soft == resource.RLIM_INFINITY else min(soft, _SELECTABLE)
    high = (max(end // 2, end - _COUNT), end - 1)
    ranges = [high, _LOW] if high[0] > _LOW[1] else [high]
    # A program may raise its limit up to the hard one, which it has from here.
    most = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    end = 2 * _SELECTABLE
    while end <= most:
        ranges.append((end - _FEW, end - 1))
        end *= 2
    return ranges


def free_number(task: int, ranges: Sequence[Range], least: int = 0) -> int:
    """A number in the ranges that a program may have and does not use, and no less than `least`.

    Raises:
        OSError: EINVAL, if `least` is beyond the ranges or the limit; EMFILE, if none is free.
    """
    limit = _limit_of(task)
    if least >= min(limit, 1 + max(last for _, last in ranges)):
        raise refused(errno.EINVAL, f"descriptor {least}")
    for first, last in ranges:
        for number in range(max(first, least), min(last + 1, limit)):
            if not os.path.lexists(f"/proc/{task}/fd/{number}"):
                return number
    told = [one for one in ranges if one[0] < limit] or ranges[:2]
    named = " and ".join(f"{first} to {last}" for first, last in told)
    why = f"no descriptor for a device is free: they are {named}, and the program may have {limit}"
    raise refused(errno.EMFILE, why)


def _limit_of(task: int) -> int:
    """How many descriptors a task may have; as many as may be selected where we may not ask."""
    try:
        soft, _ = resource.prlimit(task, resource.RLIMIT_NOFILE)
    except OSError:
        return _SELECTABLE
    return _MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
