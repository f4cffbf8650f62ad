"""An IPv6 address that the machine has, but may not use yet (RFC 4862, 5.4)."""

from __future__ import annotations

from .apart import run_apart


def test_who_opens_it_is_told_why_and_what_to_do() -> None:
    (line,) = run_apart("address_too_new", "no such address can be made")
    assert "duplicate address detection" in line
    assert "EADDRNOTAVAIL" in line
