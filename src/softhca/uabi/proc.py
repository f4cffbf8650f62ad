"""What a supervisor needs of /proc: programs are looked at there by their numbers."""

from __future__ import annotations

import errno
import os

from softhca._adapter import ProcessMemory


def demand_own() -> None:
    """Refuses to begin where /proc shows other processes than ours by their numbers.

    That is so where a PID namespace was made and /proc is still the one from outside. Whoever
    takes a number of this namespace there looks at somebody else.

    Raises:
        OSError: EOPNOTSUPP, with the reason.
    """
    try:
        shown = os.readlink("/proc/self")
    except OSError as error:
        raise OSError(errno.EOPNOTSUPP, f"there is no /proc here: {error.strerror}") from None
    if shown != str(os.getpid()):
        raise OSError(
            errno.EOPNOTSUPP,
            "/proc shows the processes of another PID namespace; it has to be mounted anew in this "
            "one, as by `unshare --pid --fork --mount-proc`",
        )


def demand_memory() -> None:
    """Refuses to begin where a sandbox forbids what reaches the memory of programs.

    Raises:
        OSError: EOPNOTSUPP, with the reason.
    """
    try:
        ProcessMemory.open(os.getpid(), os.getpid())
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOSYS):
            return  # What holds for this process alone, as one with capabilities of its file.
        raise OSError(
            errno.EOPNOTSUPP,
            "a sandbox (seccomp) forbids what reaches the memory of programs: pidfd_open(2) "
            f"or pidfd_send_signal(2) ({os.strerror(error.errno)}); "
            "`docker run --security-opt seccomp=unconfined` lifts that",
        ) from None
