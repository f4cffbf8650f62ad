"""An IPv6 address that the machine has, but may not use yet (RFC 4862, 5.4)."""

from __future__ import annotations

import subprocess
import sys

import pytest


def test_who_opens_it_is_told_why_and_what_to_do() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.two_processes.address_too_new"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip(f"no such address can be made here: {done.stdout.strip()}")
    assert done.returncode == 0, done.stderr
    assert "duplicate address detection" in done.stdout
    assert "EADDRNOTAVAIL" in done.stdout
