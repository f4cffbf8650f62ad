"""Runs unmodified programs under `softhca run`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
# Debian's Python, whose package of pyverbs it is; ours may be another one.
SYSTEM_PYTHON = "/usr/bin/python3"
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
