"""Regions that begin at 0, as ibv_reg_mr(3) has them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from .programs import run_under

SOURCE = Path(__file__).with_name("zero_based.c")


@pytest.mark.skipif(
    shutil.which("cc") is None or not Path("/usr/include/infiniband/verbs.h").exists(),
    reason="not installed: a C compiler and libibverbs-dev",
)
def test_both_keys_of_a_zero_based_region_count_from_its_first_byte(tmp_path: Path) -> None:
    program = tmp_path / "zero_based"
    subprocess.run(["cc", "-O2", "-o", program, SOURCE, "-libverbs"], check=True)
    assert run_under(str(program)).stdout == "success: from an offset to an offset\n"
