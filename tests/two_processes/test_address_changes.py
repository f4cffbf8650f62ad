"""A device is told when its interface goes down or its address away (IBTA Vol 1, 11.6.3)."""

from __future__ import annotations

import json

from .apart import run_apart

ACTIVE, DOWN = "ACTIVE", "DOWN"
OURS, NONE = "::ffff:10.77.0.1", "::"


def test_interface_and_address_come_and_go() -> None:
    lines = run_apart("address_changes", "no network namespace can be made")
    heard = [json.loads(line) for line in lines]
    assert [tuple(one.values()) for one in heard] == [
        ("interface down", "PORT_ERR", 1, DOWN, OURS),
        ("interface up", "PORT_ACTIVE", 1, ACTIVE, OURS),
        ("address removed", "GID_CHANGE", 1, ACTIVE, NONE),
        ("address added", "GID_CHANGE", 1, ACTIVE, OURS),
    ]
