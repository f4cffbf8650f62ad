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


def test_programs_that_cannot_be_read_are_explained() -> None:
    command = (*SOFTHCA, "run", "--", "ls", "/sys/class/infiniband")
    done = run(*words_without("process_vm_readv=EPERM"), *command)
    for word in ("may not be reached", "--cap-add SYS_PTRACE", "process_vm_readv(2)"):
        assert word in done.stderr, done.stderr
