"""A multicast group is where the adapter's address is, whatever interface that is on."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


def test_the_interface_is_replaced() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.two_processes.group_follows"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip(f"no interface can be made here: {done.stdout.strip()}")
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == ["before", "after"]
