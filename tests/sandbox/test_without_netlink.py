"""A sandbox without netlink can use the adapter; it only hears nothing of its interfaces."""

from __future__ import annotations

from .apart import run_apart


def test_a_sandbox_without_netlink() -> None:
    lines = run_apart("without_netlink", "netlink cannot be forbidden")
    assert lines == ["SUCCESS 1", "address EADDRNOTAVAIL", "address ENODEV"]
