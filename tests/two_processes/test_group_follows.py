"""A multicast group is where the adapter's address is, whatever interface that is on."""

from __future__ import annotations

import json

from .apart import run_apart


def test_the_interface_is_replaced() -> None:
    lines = run_apart("group_follows", "no interface can be made")
    assert [json.loads(line) for line in lines] == ["before", "after"]
