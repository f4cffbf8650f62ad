"""What container runtimes refuse of system calls, and what is made of it."""

from __future__ import annotations

import sys

from .sandboxed import SOFTHCA, run, words_without


def test_a_program_ends_where_close_range_is_refused() -> None:
    # Whoever watches over the program would keep the supervisor's end of their socket open, and
    # never hear of its end.
    done = run(*words_without("close_range=EPERM"), *SOFTHCA, "run", "--", "sh", "-c", "exit 3")
    assert done.returncode == 3, done.stderr


def test_a_device_is_duplicated_where_pidfd_getfd_is_refused() -> None:
    # So does Docker, without CAP_SYS_PTRACE.
    program = """
import fcntl, os
path = "/dev/infiniband/uverbs0"
device = os.open(path, os.O_RDWR | os.O_CLOEXEC)
for number in (os.dup(device), fcntl.fcntl(device, fcntl.F_DUPFD_CLOEXEC, device + 40)):
    assert os.fstat(number).st_rdev == os.stat(path).st_rdev
    assert number > device
os.close(device)
print("well")
"""
    command = (*SOFTHCA, "run", "--", sys.executable, "-c", program)
    for error in ("EPERM", "ENOSYS"):
        done = run(*words_without(f"pidfd_getfd={error}"), *command)
        assert done.stdout == "well\n", done.stderr


def test_a_supervisor_that_cannot_reach_programs_does_not_begin() -> None:
    # Commands that register memory would be refused, and nobody would say why.
    done = run(*words_without("pidfd_open=ENOSYS"), *SOFTHCA, "run", "--", "true")
    assert done.returncode == 1
    assert "forbids what reaches the memory of programs: pidfd_open(2)" in done.stderr, done.stderr


def test_programs_are_reached_where_process_vm_readv_is_refused() -> None:
    # So does Docker up to 20.10.
    program = """
import ctypes, errno, mmap, os
path = b"/dev/infiniband/uverbs0"
assert os.listdir("/sys/class/infiniband") == ["rxe0"]
libc = ctypes.CDLL(None, use_errno=True)
page = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
place = ctypes.addressof(ctypes.c_char.from_buffer(page))
assert libc.stat(path, ctypes.c_void_p(place)) == 0
assert int.from_bytes(page[40:48], "little") == os.stat(path).st_rdev != 0
# What the program may not write is not written for it.
before = bytes(page)
assert libc.mprotect(ctypes.c_void_p(place), mmap.PAGESIZE, mmap.PROT_READ) == 0
assert libc.stat(b"/sys/class/infiniband", ctypes.c_void_p(place)) == -1
assert ctypes.get_errno() == errno.EFAULT
assert bytes(page) == before
print("well")
"""
    for error in ("EPERM", "ENOSYS"):
        words = words_without(f"process_vm_readv={error}", f"process_vm_writev={error}")
        done = run(*words, *SOFTHCA, "run", "--", sys.executable, "-c", program)
        assert done.stdout == "well\n", done.stderr
