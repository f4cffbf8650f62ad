"""A sandbox without netlink can use the adapter; it only hears nothing of its interfaces."""

from __future__ import annotations

import subprocess
import sys

import pytest


def test_a_sandbox_without_netlink() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.two_processes.without_netlink"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip(f"netlink cannot be forbidden here: {done.stdout.strip()}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["SUCCESS 1", "address EADDRNOTAVAIL", "address ENODEV"]
