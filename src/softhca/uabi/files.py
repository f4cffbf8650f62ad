"""The file behind the descriptor that a program gets for a device."""

from __future__ import annotations

import os

from softhca._adapter import RingFile


class DeviceFile:
    """What programs map their queues from.

    Programs get a description that was opened anew: the kernel tells us when that is closed.

    Attributes:
        rings: Where queues are made.
        inode: By which the file is recognised.
        file_system: The device number of the file system that the inode is of.
    """

    def __init__(self) -> None:
        self.rings = RingFile()
        status = os.fstat(self.rings.fd)
        self.inode = status.st_ino
        self.file_system = status.st_dev

    def open_again(self) -> int:
        """A description for programs, which writes doorbells where no queue lies."""
        descriptor = os.open(f"/proc/self/fd/{self.rings.fd}", os.O_RDWR | os.O_CLOEXEC)
        os.lseek(descriptor, RingFile.DOORBELLS_AT, os.SEEK_SET)
        return descriptor
