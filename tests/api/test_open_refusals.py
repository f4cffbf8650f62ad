"""What `open`, and who else makes devices, refuses by name."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

import softhca as hca
from softhca.testing import Fabric, open_simulated

from .refusing import refused


def test_open_names_what_is_wrong_with_an_address() -> None:
    error = refused(lambda: hca.open("no-such-if0"), "address", errno.ENODEV)
    assert "no-such-if0" in str(error)
    refused(lambda: hca.open("198.51.100.7"), "address", errno.EADDRNOTAVAIL)


def test_open_names_a_capture_that_cannot_be_written(tmp_path: Path) -> None:
    refused(lambda: hca.open(capture=tmp_path / "no" / "x.pcapng"), "capture", errno.ENOENT)
    with pytest.raises(TypeError, match=r"faults must be softhca.testing.Faults, not float"):
        hca.open(faults=0.5)  # type: ignore[arg-type]


def test_open_names_a_capture_that_is_no_path() -> None:
    with pytest.raises(TypeError, match=r"capture must be a str or os.PathLike, not float"):
        hca.open(capture=0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "lo\0x"])
def test_open_wants_names_that_are_some(text: str) -> None:
    refused(lambda: hca.open(text), "address")
    refused(lambda: hca.open(capture=text), "capture")


def test_open_says_who_holds_the_port() -> None:
    with hca.open() as device:
        address = str(device.gid.ip)
        error = refused(lambda: hca.open(address), "address", errno.EADDRINUSE)
        assert address in str(error)


@pytest.mark.parametrize("address", [5, b"lo", ["lo"]])
def test_an_address_is_text(address: Any) -> None:
    with pytest.raises(TypeError, match="address must be str, not"):
        hca.open(address)


@pytest.mark.parametrize("name", [5, b"h", ["h"]])
def test_a_name_is_text(name: Any) -> None:
    with Fabric() as fabric:
        for make in (
            lambda: hca.open(name=name),
            lambda: open_simulated("10.0.0.8", name=name),
            lambda: fabric.host(name),
        ):
            with pytest.raises(TypeError, match=f"name must be str, not {type(name).__name__}"):
                make()
        assert not fabric.devices
