"""The bugs that `tests/mutations/run.py` plants still have their places."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from bugs import BUGS, Bug

NATIVE = Path(__file__).resolve().parents[2] / "native"


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_can_be_planted(bug: Bug) -> None:
    assert (NATIVE / bug.file).read_text().count(bug.right) == 1


def test_there_are_twenty() -> None:
    assert len({bug.name for bug in BUGS}) >= 20
