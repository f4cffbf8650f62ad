"""A supervisor that outlives programs: they come to it by its name.

Who starts a program connects to the supervisor's socket, is told how programs are to be started,
and passes the descriptor on which the kernel asks about the program. When the connection ends, the
supervisor has, and whoever started the program kills it: nobody would answer it any more.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from softhca.uabi.places import directory_for_files

_LONGEST = 65536
_LONGEST_PATH = 107  # Of a socket: sun_path has an octet more, for the zero.


def _directory() -> Path:
    """Where this user's sockets are, and nobody else writes."""
    own = os.environ.get("XDG_RUNTIME_DIR")
    place = Path(own, "softhca") if own else directory_for_files() / f"softhca-{os.getuid()}"
    place.mkdir(mode=0o700, exist_ok=True)
    status = place.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(errno.EPERM, f"{place} is not this user's alone")
    return place


def path_of(name: str) -> Path:
    """The socket of a name.

    Raises:
        OSError: EINVAL, for what cannot be a file's name; ENAMETOOLONG, for what no socket's can.
    """
    if not name or "/" in name or name.startswith("."):
        raise OSError(errno.EINVAL, f"{name!r} is no name for a supervisor")
    path = _directory() / name
    if len(os.fsencode(path)) > _LONGEST_PATH:
        why = f"{path} is too long for a socket, whose path has {_LONGEST_PATH} bytes at most"
        raise OSError(errno.ENAMETOOLONG, why)
    return path


@contextmanager
def _alone() -> Iterator[None]:
    """Keeps others of this user from making or removing sockets meanwhile."""
    directory = os.open(_directory(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def close_elsewhere(descriptors: Sequence[int]) -> None:
    """Closes what somebody else has opened, in a thread that has nothing else to do.

    Who closes a file last may have to wait for as long as who opened it likes: TCP sockets linger.
    """

    def close() -> None:
        for descriptor in descriptors:
            with suppress(OSError):
                os.close(descriptor)

    if descriptors:
        try:
            threading.Thread(target=close, name="softhca-close", daemon=True).start()
        except RuntimeError:
            close()  # There may be no more threads.


def is_listener(descriptor: int) -> bool:
    """Whether the kernel asks there; no file has such a name, for all of theirs begin with "/"."""
    return os.readlink(f"/proc/self/fd/{descriptor}") == "anon_inode:seccomp notify"


class Wire:
    """A connection between a supervisor and who starts programs: words, and descriptors."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    @property
    def peer(self) -> int:
        """The process at the other end; 0, where that cannot be seen from this PID namespace."""
        credentials = self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return int.from_bytes(credentials[:4], "little")

    def tell(self, what: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
        """Sends a message."""
        socket.send_fds(self.connection, [json.dumps(what).encode()], list(descriptors))

    def hear(self) -> tuple[dict[str, Any], list[int]] | None:
        """Takes a message; None at the end. The descriptors are the caller's to close.

        Raises:
            ValueError: For what is none of our messages. What came along is closed.
        """
        try:
            octets, descriptors, _, _ = socket.recv_fds(
                self.connection, _LONGEST, 4, socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionResetError:
            return None  # It has gone before it heard what it was told.
        words: object = None
        # What is nested deep enough uses up the stack.
        with suppress(ValueError, RecursionError):
            words = json.loads(octets)
        if isinstance(words, dict):
            return words, descriptors
        close_elsewhere(descriptors)
        if not octets:
            return None
        raise ValueError("this is no message to a supervisor")

    def hang_up(self) -> None:
        """Closes it, without waiting for what the other end may have sent along."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        close_elsewhere([self.connection.detach()])


class Door:
    """Where programs come to a supervisor.

    Attributes:
        listener: The socket.
    """

    def __init__(self, name: str) -> None:
        self._path = path_of(name)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.setblocking(False)
        try:
            # One that does not listen yet looks like what a killed supervisor left.
            with _alone():
                if self._is_taken():
                    raise OSError(errno.EADDRINUSE, f"there is a supervisor of the name {name!r}")
                self._path.unlink(missing_ok=True)
                self.listener.bind(str(self._path))
                self.listener.listen()
        except OSError:
            self.listener.close()
            raise

    def _is_taken(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            probe.setblocking(False)
            try:
                probe.connect(str(self._path))
            except BlockingIOError:
                return True  # So many wait there that no more may.
            except OSError:
                return False
            return True

    def accept(self) -> Wire:
        """Takes the connection that waits."""
        connection, _ = self.listener.accept()
        connection.setblocking(True)
        return Wire(connection)

    def close(self) -> None:
        """Lets nobody in any more."""
        with _alone():
            self.listener.close()
            self._path.unlink(missing_ok=True)


def connect(name: str) -> Wire:
    """Comes to a supervisor.

    Raises:
        OSError: ENOENT or ECONNREFUSED, if there is none of the name.
    """
    path = str(path_of(name))
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(path)
    except OSError as error:
        connection.close()
        raise OSError(error.errno, f"there is no supervisor of the name {name!r}") from None
    return Wire(connection)
