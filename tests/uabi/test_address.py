"""`softhca run --address`: which address the adapters have."""

from __future__ import annotations

import socket
from collections.abc import Callable
from ipaddress import IPv6Address

import pytest

from .programs import run_under, wait_until

FreeAddress = Callable[[], str]
GIDS = "/sys/class/infiniband/{}/ports/1/gids/0"


def first_gid(*options: str, device: str = "rxe0") -> str:
    """Waits while another process has the address: there is but one 127.0.0.1."""
    said = []

    def is_free() -> bool:
        done = run_under("cat", GIDS.format(device), options=options, check=False)
        said[:] = done.stdout.strip(), done.stderr
        return "EADDRINUSE" not in done.stderr

    wait_until(is_free)
    shown, errors = said
    assert not errors
    return shown


def gid_of(address: str) -> str:
    """Of an IPv4 address, as sysfs shows it; `exploded` has a dotted quad since Python 3.13."""
    return IPv6Address(f"::ffff:{address}").packed.hex(":", 2)


def has_loopback_of_ipv6() -> bool:
    """Whether ::1 can be used: kernels that know IPv6 may be told to have no address of it."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_an_adapter_has_the_address_that_is_asked_for(free_address: FreeAddress) -> None:
    address = free_address()
    assert first_gid("--address", address) == gid_of(address)


def test_one_address_for_each_device(free_address: FreeAddress) -> None:
    one, other = free_address(), free_address()
    both = ("--address", one, "--address", other, "--devices", "2")
    assert first_gid(*both) == gid_of(one)
    assert first_gid(*both, device="rxe1") == gid_of(other)


@pytest.mark.skipif(not has_loopback_of_ipv6(), reason="no IPv6 here")
def test_an_address_of_ipv6() -> None:
    assert first_gid("--address", "::1") == "0000:0000:0000:0000:0000:0000:0000:0001"


def test_an_interface_stands_for_its_address() -> None:
    assert first_gid("--address", "lo").endswith("7f00:0001")


def test_an_address_that_nobody_has_is_refused() -> None:
    done = run_under("true", options=("--address", "192.0.2.77"), check=False)
    assert done.returncode == 1
    assert "192.0.2.77" in done.stderr
