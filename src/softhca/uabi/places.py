"""Where files can be put that are gone when a command ends."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

# Writable in containers whose root is read-only, where nobody gave them a /tmp.
_IN_MEMORY = Path("/dev/shm")


def directory_for_files() -> Path:
    """The directory of temporary files; where none can be written, that of POSIX shared memory.

    Raises:
        OSError: EROFS, where neither can be written; it says what to set.
    """
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:
        if os.access(_IN_MEMORY, os.W_OK | os.X_OK):
            return _IN_MEMORY
    raise OSError(
        errno.EROFS,
        f"neither a directory of temporary files nor {_IN_MEMORY} can be written, or has room; "
        "have TMPDIR name one that can, or give the container one, as by "
        "`docker run --tmpfs /tmp`",
    )
