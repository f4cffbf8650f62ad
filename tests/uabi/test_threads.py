"""Threads of programs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from .programs import run_under

SOURCE = Path(__file__).with_name("first_thread_ends.c")


@pytest.mark.skipif(
    shutil.which("cc") is None or not Path("/usr/include/infiniband/verbs.h").exists(),
    reason="not installed: a C compiler and libibverbs-dev",
)
def test_a_thread_registers_memory_after_the_first_one_has_ended(tmp_path: Path) -> None:
    program = tmp_path / "first_thread_ends"
    subprocess.run(["cc", "-O2", "-o", program, SOURCE, "-libverbs", "-lpthread"], check=True)
    assert run_under(str(program)).stdout == "registered\n"
