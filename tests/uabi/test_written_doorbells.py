"""Doorbells that nobody answers are rung before what the program asks for next."""

from __future__ import annotations

from pathlib import Path

import pytest

import softhca
from softhca._adapter import DoorbellWatch, Known
from softhca.uabi.supervisor import Supervisor

from .programs import SYSTEM_PYTHON, needs_pyverbs

PROGRAM = str(Path(__file__).with_name("posts_and_commands.py"))


def watch_that_sees_nothing(known: Known) -> DoorbellWatch:
    """Its thread has ended: whatever is rung, a command has rung."""
    watch = DoorbellWatch(known)
    watch.close()
    return watch


@needs_pyverbs
@pytest.mark.parametrize("queue_pairs", [1, 5])
def test_a_command_finds_done_what_was_posted_before_it(
    monkeypatch: pytest.MonkeyPatch, queue_pairs: int
) -> None:
    monkeypatch.setattr("softhca.uabi.supervisor.DoorbellWatch", watch_that_sees_nothing)
    with (
        softhca.open() as device,
        Supervisor([device], doorbells_are_written=True) as supervisor,
    ):
        words = [SYSTEM_PYTHON, PROGRAM, str(queue_pairs)]
        assert supervisor.serve(supervisor.launch(SYSTEM_PYTHON, words)) == 0
