"""Fixtures: the captures of Linux's own traffic, and one host at our address."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .host import Host, Qp, Region
from .peer import Peer, connect

TOP = Path(__file__).resolve().parents[2]


def captures_dir() -> Path:
    return Path(os.environ.get("SOFTHCA_PCAPS", TOP.parent / "shared" / "pcaps"))


@pytest.fixture(scope="session")
def captures() -> Path:
    """Where the captures are; without them the test is skipped."""
    where = captures_dir()
    if not (where / "vectors.json").exists():
        pytest.skip(f"no captures in {where}; SOFTHCA_PCAPS names their directory")
    return where


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def served(host: Host) -> tuple[Qp, Peer, Region]:
    """(qp, peer, memory) with path MTU 256."""
    qp, peer = connect(host, path_mtu=1)
    return qp, peer, host.memory(4096)
