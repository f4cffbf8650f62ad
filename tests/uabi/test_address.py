"""`softhca run --address`: which address the adapters have."""

from __future__ import annotations

from pathlib import Path

import pytest

from .programs import run_under

GIDS = "/sys/class/infiniband/{}/ports/1/gids/0"


def first_gid(*options: str, device: str = "rxe0") -> str:
    return run_under("cat", GIDS.format(device), options=options).stdout.strip()


def test_an_adapter_has_the_address_that_is_asked_for() -> None:
    assert first_gid("--address", "127.11.12.13") == "0000:0000:0000:0000:0000:ffff:7f0b:0c0d"


def test_one_address_for_each_device() -> None:
    both = ("--address", "127.11.12.14", "--address", "127.11.12.15", "--devices", "2")
    assert first_gid(*both).endswith("7f0b:0c0e")
    assert first_gid(*both, device="rxe1").endswith("7f0b:0c0f")


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="no IPv6 here")
def test_an_address_of_ipv6() -> None:
    assert first_gid("--address", "::1") == "0000:0000:0000:0000:0000:0000:0000:0001"


def test_an_interface_stands_for_its_address() -> None:
    assert first_gid("--address", "lo").endswith("7f00:0001")


def test_an_address_that_nobody_has_is_refused() -> None:
    done = run_under("true", options=("--address", "192.0.2.77"), check=False)
    assert done.returncode == 1
    assert "192.0.2.77" in done.stderr
