"""A device is told when its interface goes down or its address away (IBTA Vol 1, 11.6.3)."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

ACTIVE, DOWN = "ACTIVE", "DOWN"
OURS, NONE = "::ffff:10.77.0.1", "::"


def test_interface_and_address_come_and_go() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.two_processes.address_changes"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip(f"no network namespace can be made here: {done.stdout.strip()}")
    assert done.returncode == 0, done.stderr
    heard = [json.loads(line) for line in done.stdout.splitlines()]
    assert [tuple(one.values()) for one in heard] == [
        ("interface down", "PORT_ERR", 1, DOWN, OURS),
        ("interface up", "PORT_ACTIVE", 1, ACTIVE, OURS),
        ("address removed", "GID_CHANGE", 1, ACTIVE, NONE),
        ("address added", "GID_CHANGE", 1, ACTIVE, OURS),
    ]
