"""Regions that begin at 0, as ibv_reg_mr(3) has them."""

from __future__ import annotations

from pathlib import Path

from .programs import compiled, needs_verbs_headers, run_under


@needs_verbs_headers
def test_both_keys_of_a_zero_based_region_count_from_its_first_byte(tmp_path: Path) -> None:
    program = compiled("zero_based", tmp_path)
    assert run_under(program).stdout == "success: from an offset to an offset\n"
