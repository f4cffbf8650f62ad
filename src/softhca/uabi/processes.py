"""The processes whose memory a context reaches."""

from __future__ import annotations

import errno
import os

from softhca._adapter import ProcessMemory
from softhca.uabi.commands.call import refused
from softhca.uabi.deserted import Swept
from softhca.uabi.mappings import mappings_from


class Processes:
    """Address spaces of processes that share a context, opened once each.

    Those of processes that have ended are forgotten; regions keep the one that they are of.
    """

    def __init__(self) -> None:
        self._memories: Swept[int, ProcessMemory] = Swept(lambda process, _: _has_ended(process))

    def memory_of(self, process: int, task: int, address: int) -> ProcessMemory:
        """The memory of a process, in which `address` can be read; `task` is a thread that runs.

        One that was opened before an exec is another address space, of which nothing is left.
        """
        memory = self._memories.get(process)
        if memory is None or memory.read(address, 1) is None:
            memory = ProcessMemory.open(process, task)
            self._memories.add(process, memory)
        return memory


def _has_ended(process: int) -> bool:
    return not os.path.exists(f"/proc/{process}")


def demand_mapped(task: int, address: int, length: int, writable: bool) -> None:
    """Refuses a range of which a task has not all, as ib_umem_get() does.

    The memory file of a process could write what the process itself may not.

    Raises:
        OSError: EFAULT; EINVAL, for a range that wraps around.
    """
    end = address + length
    if end >= 1 << 64:
        raise refused(errno.EINVAL, f"{length} bytes at {address:#x} are beyond all memory")
    for mapping in mappings_from(task, address):
        # A private mapping may be written by way of a copy; a shared one is what it says. What is
        # pinned for writing needs not be readable.
        if mapping.first > address or not (mapping.writable if writable else mapping.readable):
            break
        if mapping.is_of_a_file and not _is_there(task, min(mapping.last, end) - 1):
            break
        address = mapping.last
        if address >= end:
            return
    raise refused(errno.EFAULT, f"the program may not reach all of {address:#x} to {end:#x}")


def _is_there(task: int, address: int) -> bool:
    """Whether there is a page: not behind a file's end, and not where the kernel may not look."""
    with open(f"/proc/{task}/mem", "rb", buffering=0) as memory:
        try:
            return len(os.pread(memory.fileno(), 1, address)) == 1
        except OSError:
            return False
