"""A device follows its interface and its address (IBTA Vol 1, 11.6.3): state, MTU and GID."""

from __future__ import annotations

import json

from .apart import run_apart

SMALL, LARGE = "MTU_1024", "MTU_4096"
ACTIVE, DOWN = "ACTIVE", "DOWN"
OURS, NONE = "::ffff:10.77.0.1", "::"


def test_interface_and_address_come_and_go() -> None:
    lines = run_apart("address_changes", "no network namespace can be made")
    heard = [json.loads(line) for line in lines]
    assert [tuple(one.values()) for one in heard] == [
        ("interface smaller, and down", "PORT_ERR", 1, DOWN, SMALL, SMALL, OURS),
        ("interface larger, and up", "PORT_ACTIVE", 1, ACTIVE, LARGE, LARGE, OURS),
        ("address removed", "GID_CHANGE", 1, ACTIVE, LARGE, LARGE, NONE),
        ("address added", "GID_CHANGE", 1, ACTIVE, LARGE, LARGE, OURS),
    ]
