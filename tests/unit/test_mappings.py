"""What is said of the mappings of a task, by both ways of asking."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator

import pytest

from softhca.uabi import mappings
from softhca.uabi.mappings import Mapping, mappings_from

PAGE = mmap.PAGESIZE


NAMES = ("plain", "of two words", "b\\y", "gone")


@pytest.fixture
def directory() -> Iterator[str]:
    """Where files with odd names are mapped from, one of which has gone."""
    with tempfile.TemporaryDirectory() as directory:
        made = []
        for name in NAMES:
            with open(os.path.join(directory, name), "w+b") as file:
                file.truncate(3 * PAGE)
                made.append(mmap.mmap(file.fileno(), 2 * PAGE, offset=PAGE))
        os.unlink(os.path.join(directory, "gone"))
        yield directory


def listed(address: int = 0) -> list[Mapping]:
    """Those of this process. What is no program's the kernel lists and does not tell when asked."""
    return [one for one in mappings_from(os.getpid(), address) if one.path != "[vsyscall]"]


def lines_alone(patch: pytest.MonkeyPatch) -> None:
    """Lets the kernel be one that cannot be asked."""
    patch.setattr(mappings, "_QUERY", 0)


def test_both_ways_say_the_same(directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [one for one in listed() if one.path.startswith(directory)]
    lines_alone(monkeypatch)
    assert [one for one in listed() if one.path.startswith(directory)] == asked
    names = {os.path.basename(one.path) for one in asked}
    assert names == {*NAMES[:-1], "gone (deleted)"}
    assert {one.offset for one in asked} == {PAGE}


def test_they_begin_with_the_one_at_an_address(
    directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = next(one for one in listed() if one.path == f"{directory}/plain")
    for patched in (False, True):
        if patched:
            lines_alone(monkeypatch)
        assert next(mappings_from(os.getpid(), plain.first)) == plain
        assert next(mappings_from(os.getpid(), plain.last - 1)) == plain
        assert next(mappings_from(os.getpid(), plain.last)).first >= plain.last
