"""What programs may do with memory that they have, and what not."""

from __future__ import annotations

from .programs import FINDS_WHAT_LIES_HERE, SYSTEM_PYTHON, needs_pyverbs, run_under


@needs_pyverbs
def test_only_what_may_be_written_is_registered_for_windows() -> None:
    """A window may give more rights than its region asked the system for (ib_access_writable())."""
    program = """
import ctypes, errno, mmap
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
import verbs_enums as e

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
memory = libc.mmap(None, mmap.PAGESIZE, mmap.PROT_READ, flags, -1, 0)
pd = PD(Context(name="rxe0"))
MR(pd, mmap.PAGESIZE, e.IBV_ACCESS_REMOTE_READ, address=memory).close()
try:
    MR(pd, mmap.PAGESIZE, e.IBV_ACCESS_MW_BIND, address=memory)
except PyverbsRDMAError as error:
    print(errno.errorcode[error.error_code])
"""
    assert run_under(SYSTEM_PYTHON, "-c", FINDS_WHAT_LIES_HERE + program).stdout == "EFAULT\n"
