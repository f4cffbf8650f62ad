"""Memory of programs that the supervisor can map: it is copied once."""

from __future__ import annotations

from pathlib import Path

from .programs import SYSTEM_PYTHON, needs_pyverbs, run_under


@needs_pyverbs
def test_files_in_memory_are_mapped_and_all_kinds_of_memory_hold_the_right_bytes() -> None:
    program = Path(__file__).with_name("shared_memory.py")
    said = run_under(SYSTEM_PYTHON, str(program)).stdout.splitlines()
    assert said == [
        "of_memfd mapped",
        "of_name mapped",
        "of_nobody not mapped",
        "of_itself not mapped",
    ]
