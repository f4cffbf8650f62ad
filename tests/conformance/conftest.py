"""Fixtures: the captures of Linux's own traffic, and one host at our address."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .host import Host

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
