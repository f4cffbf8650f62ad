"""The two processors that the two sides of a measurement run on."""

from __future__ import annotations

import functools
import os
from pathlib import Path


@functools.cache
def two_processors() -> tuple[int, int]:
    """Two that this process may use, if possible not two threads of one core.

    Both are the same where there is only one, which makes every figure of two sides meaningless,
    but not the run.
    """
    allowed = sorted(os.sched_getaffinity(0))
    first = allowed[0]
    others = [cpu for cpu in allowed[1:] if _core(cpu) != _core(first)] or allowed[1:] or [first]
    return first, others[0]


def _core(cpu: int) -> str:
    path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    try:
        return path.read_text().strip()
    except OSError:
        return str(cpu)
