"""Over IPv6 an ordinary socket gets no datagram without a UDP checksum (RFC 8200, 8.1)."""

from __future__ import annotations

from .apart import run_apart


def test_an_ordinary_socket_hears_an_adapter_over_ipv6() -> None:
    (line,) = run_apart("ipv6_program", "no IPv6 addresses can be made")
    # BTH, DETH, 22 bytes with their padding, ICRC.
    assert int(line) == 12 + 8 + 24 + 4
