"""Runs unmodified programs under `softhca run`."""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
# Debian's Python, whose package of pyverbs it is; ours may be another one.
SYSTEM_PYTHON = "/usr/bin/python3"
# For a program that is given as text and imports what lies beside this file.
FINDS_WHAT_LIES_HERE = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
_LONGEST_SECONDS = 120


def needs(*programs: str) -> pytest.MarkDecorator:
    """Skips a test where a program of it is not installed."""
    missing = [name for name in programs if shutil.which(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def has_pyverbs() -> bool:
    """Whether the system's Python has rdma-core's binding."""
    if not os.path.exists(SYSTEM_PYTHON):
        return False
    command = [SYSTEM_PYTHON, "-c", "import pyverbs.device"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


needs_pyverbs = pytest.mark.skipif(not has_pyverbs(), reason="not installed: python3-pyverbs")


needs_verbs_headers = pytest.mark.skipif(
    shutil.which("cc") is None or not Path("/usr/include/infiniband/verbs.h").exists(),
    reason="not installed: a C compiler and libibverbs-dev",
)


def compiled(name: str, into: Path) -> str:
    """Builds a program of libibverbs, of <name>.c beside this file."""
    source, program = Path(__file__).with_name(f"{name}.c"), into / name
    subprocess.run(["cc", "-O2", "-o", program, source, "-libverbs", "-lpthread"], check=True)
    return str(program)


def wait_until(condition: Callable[[], object]) -> None:
    """Waits for a condition, and fails if it takes too long."""
    deadline = time.monotonic() + _LONGEST_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it does not come true"
        time.sleep(0.01)


def is_running(process: int) -> bool:
    """Whether a process runs; one that is only waited for does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


def free_port() -> int:
    """A port of TCP that nobody else is given until these tests end.

    Who says SO_REUSEADDR, as the programs do, may listen on it all the same.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    atexit.register(holder.close)
    return int(holder.getsockname()[1])


def run_both_ends(*command: str, options: tuple[str, ...] = ()) -> str:
    """Runs a program as server and as client, under one supervisor; returns what both printed.

    `command` is the server's, without the option for the port; the client's has the host besides.
    """
    words = [*command, "-p", str(free_port())]
    program = [sys.executable, str(Path(__file__).with_name("pair.py")), *words]
    return run_under(*program, options=options).stdout


def run_under(
    *command: str, options: tuple[str, ...] = (), check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Runs a program on an adapter of its own; by default it must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "softhca", "run", *options, "--", *command],
        capture_output=True,
        text=True,
        timeout=_LONGEST_SECONDS,
        check=False,
    )
    if check:
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done
