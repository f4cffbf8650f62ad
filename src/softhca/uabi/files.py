"""The file behind the descriptor that a program gets for a device."""

from __future__ import annotations

import errno
import fcntl
import os
import signal

from softhca._adapter import RingFile
from softhca.uabi.spare import keep_one, room_for_one


def is_open_elsewhere(path: str, lease: int) -> bool:
    """Whether somebody has a file open, in a way that a lease of it would be in.

    The kernel grants a lease for reading where nobody has a file open for writing, and one for
    writing where nobody has it open at all. What memfd_create(2) made does not count.

    Args:
        path: Of the file.
        lease: fcntl.F_RDLCK or fcntl.F_WRLCK.
    """
    try:
        with room_for_one():
            return _is_leased_in_vain(path, lease)
    except OSError as error:
        # Where that cannot be found out, nobody's is taken away.
        return error.errno in (errno.EMFILE, errno.ENFILE)


def _is_leased_in_vain(path: str, lease: int) -> bool:
    reader = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # Who opens it in this very moment waits for us, of which we are told by a signal: by
        # SIGIO, which would be our end, if we did not ask for one that is ignored.
        fcntl.fcntl(reader, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(reader, fcntl.F_SETLEASE, lease)
    except OSError as error:
        return error.errno == errno.EAGAIN
    finally:
        os.close(reader)
    return False


class DeviceFile:
    """What programs map their queues from.

    Programs get a description that was opened anew: the kernel tells us when that is closed.

    Attributes:
        rings: Where queues are made.
        inode: By which the file is recognised.
        file_system: The device number of the file system that the inode is of.
    """

    def __init__(self) -> None:
        keep_one()
        self.rings = RingFile()
        status = os.fstat(self.rings.fd)
        self.inode = status.st_ino
        self.file_system = status.st_dev

    def open_again(self) -> int:
        """A description for programs, which writes doorbells where no queue lies."""
        descriptor = os.open(f"/proc/self/fd/{self.rings.fd}", os.O_RDWR | os.O_CLOEXEC)
        os.lseek(descriptor, RingFile.DOORBELLS_AT, os.SEEK_SET)
        return descriptor

    def is_open(self) -> bool:
        """Whether a program has a description of it, or a mapping. What is ours does not count."""
        return is_open_elsewhere(f"/proc/self/fd/{self.rings.fd}", fcntl.F_RDLCK)
