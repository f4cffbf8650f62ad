"""Programs of this folder that need a process of their own, in a namespace or a sandbox."""

from __future__ import annotations

import subprocess
import sys

import pytest

CANNOT = 77  # The status of one that may not make what it needs; it prints why.


def run_apart(module: str, lacking: str) -> list[str]:
    """The lines that a program prints; where it cannot run, skips the test and says why."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.two_processes.{module}"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    if done.returncode == CANNOT:
        pytest.skip(f"{lacking} here: {done.stdout.strip()}")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
