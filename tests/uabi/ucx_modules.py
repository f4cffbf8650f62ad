"""Whether the UCX that is installed can do what these tests ask of it.

Debian's and Ubuntu's packages of 2026 (1.20, 1.23) have no transports of verbs at all, and a
`ucx_perftest` that was built with MPI (Debian's 1.18) wants a terminal for its sockets.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

# By a process of its own, which loads what programs would.
_WHERE = "import ctypes; ctypes.CDLL('libuct.so.0'); print(open('/proc/self/maps').read())"


def lacking_for_verbs() -> str:
    """Why no program can use verbs through UCX; empty if it can."""
    done = subprocess.run(
        [sys.executable, "-c", _WHERE], capture_output=True, text=True, check=False
    )
    found = re.search(r"(/\S*)/libuct\.so", done.stdout)
    if found is None:
        return "not installed: libuct.so.0 of UCX"
    if not any(Path(found.group(1), "ucx").glob("libuct_ib.so*")):
        return "this UCX was built without verbs"
    return ""


def lacking_for_perftest() -> str:
    """Why `ucx_perftest` cannot be used over verbs; empty if it can."""
    program = shutil.which("ucx_perftest")
    if program is None:
        return "not installed: ucx_perftest"
    linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    if "libmpi" in linked:
        return "this ucx_perftest was built with MPI"
    return lacking_for_verbs()
