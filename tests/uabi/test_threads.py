"""Threads of programs."""

from __future__ import annotations

from pathlib import Path

from .programs import compiled, needs_verbs_headers, run_under


@needs_verbs_headers
def test_a_thread_registers_memory_after_the_first_one_has_ended(tmp_path: Path) -> None:
    program = compiled("first_thread_ends", tmp_path)
    assert run_under(program).stdout == "registered\n"
