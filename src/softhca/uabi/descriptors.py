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
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from softhca.uabi.commands.call import refused

if TYPE_CHECKING:
    from softhca._adapter import Asked, Listener

Range = tuple[int, int]  # The first and the last number.

_COUNT = 128
_SELECTABLE = 1024
_LOW = (224, 255)
_FEW = 32
_CLOSE = 16  # To a range, whose numbers threads may have any moment.
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


def free_numbers(task: int, ranges: Sequence[Range], least: int = 0) -> Iterator[int]:
    """Numbers in the ranges that a program may have and does not use, and no less than `least`.

    Meanwhile the kernel gives other threads of the program the lowest number of all that is free,
    and an answer under the same one would take their file away. So where that has come close to a
    range, its numbers are tried from the end.

    Raises:
        OSError: EINVAL, if `least` is beyond the ranges or the limit; EMFILE, if none is free.
    """
    limit = _limit_of(task)
    if least >= min(limit, 1 + max(last for _, last in ranges)):
        raise refused(errno.EINVAL, f"descriptor {least}")
    for first, last in ranges:
        numbers = range(max(first, least), min(last + 1, limit))
        for number in reversed(numbers) if _is_used(task, first - _CLOSE) else numbers:
            if not _is_used(task, number):
                yield number
    told = [one for one in ranges if one[0] < limit] or ranges[:2]
    named = " and ".join(f"{first} to {last}" for first, last in told)
    why = f"no descriptor for a device is free: they are {named}, and the program may have {limit}"
    raise refused(errno.EMFILE, why)


def answer_with(
    listener: Listener,
    asked: Asked,
    descriptor: int,
    numbers: Iterable[int],
    close_on_exec: bool,
) -> None:
    """Gives a program a copy of a descriptor, under the first of the numbers that can be had.

    Raises:
        OSError: What `numbers` raises at its end; ENOENT, if the program waits no more.
    """
    for number in numbers:
        try:
            listener.add_descriptor(asked, descriptor, number, close_on_exec, True)
            return
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise  # Otherwise the kernel is just giving it to another thread.


def _is_used(task: int, number: int) -> bool:
    return os.path.lexists(f"/proc/{task}/fd/{number}")


def _limit_of(task: int) -> int:
    """How many descriptors a task may have; as many as may be selected where we may not ask."""
    try:
        soft, _ = resource.prlimit(task, resource.RLIMIT_NOFILE)
    except OSError:
        return _SELECTABLE
    return _MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
