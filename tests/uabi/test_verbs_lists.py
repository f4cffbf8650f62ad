"""Verbs that are nearly right: softhca says the same in each mode, and what differs is found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .programs import needs_verbs_headers
from .verbs_compare import compare, why

SEED = 1
CASES = 64  # Four of each kind.


@needs_verbs_headers
def test_every_mode_says_the_same() -> None:
    program = str(Path(__file__).with_name("verbs_lists.py"))
    modes = ("--mode", "written", "--mode", "write-abi")
    words = [sys.executable, program, *modes, str(SEED), "0", str(CASES)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.count(f"{CASES} cases, ") == 2, done.stdout


@needs_verbs_headers
@pytest.mark.parametrize(
    ("mode", "seed", "case"),
    [("write-abi", SEED, 114), ("two-devices", SEED, 171), ("two-devices", 29456, 139)],
)
def test_where_modes_differ_that_is_explained(mode: str, seed: int, case: int) -> None:
    program = str(Path(__file__).with_name("verbs_lists.py"))
    words = [sys.executable, program, "--mode", mode, str(seed), str(case), "1"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@needs_verbs_headers
def test_inline_data_that_cannot_be_read_ends_no_case() -> None:
    program = str(Path(__file__).with_name("verbs_lists.py"))
    words = [sys.executable, program, "--mode", "write-abi", str(SEED), "461", "1"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


LINE = "0\tmodify RC 0 to 1\t0 state 1 cur 0\n"


@pytest.mark.parametrize(
    ("which", "right", "status", "printed"),
    [
        ("write-abi", LINE, 0, "1 cases, 0 differ, 0 unexplained"),
        ("kernel", LINE.replace("cur 0", "cur 1"), 0, "1 lines: rxe tells as the current state"),
        ("write-abi", LINE.replace("cur 0", "cur 1"), 1, "1 cases, 1 differ, 1 unexplained"),
        ("kernel", LINE.replace("state 1", "state 2"), 1, "case 0: modify RC 0 to 1"),
        ("write-abi", LINE.replace("RC 0", "UC 0"), 1, "asked 'modify RC 0 to 1'"),
        ("write-abi", LINE + LINE, 1, "1 and 2 lines"),
        ("write-abi", LINE + LINE.replace("0\t", "1\t", 1), 1, "case 1: 0 and 1 lines"),
        ("write-abi", "", 1, "case 0: 1 and 0 lines"),
    ],
)
def test_a_difference_is_explained_or_fails(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    which: str,
    right: str,
    status: int,
    printed: str,
) -> None:
    (tmp_path / "left").write_text(LINE)
    (tmp_path / "right").write_text(right)
    assert compare(which, tmp_path / "left", tmp_path / "right") == status
    assert printed in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked", "kernel", "ours", "reason"),
    [
        (
            "modify_srq mask 0 limit 8",
            "0 query 0 7/5 limit 8",
            "0 query 0 7/5 limit 7",
            "no limit is higher than its queue",
        ),
        (
            "post_srq_recv sge 1",
            "0 query 0 7/5 limit 4294967295",
            "0 query 0 7/5 limit 7",
            "no limit is higher than its queue",
        ),
        ("modify_srq mask 2 limit 3", "0 query 0 7/5 limit 3", "0 query 0 7/5 limit 0", ""),
        (
            "reg_mr access 11f offset 10000 length 10000 iova 0",
            "EINVAL",
            "EFAULT",
            "a region may give a right to FLUSH (Annex A19), which rxe of 6.1 does not know",
        ),
        ("reg_mr access 1f offset 10000 length 10000 iova 0", "EINVAL", "EFAULT", ""),
        (
            "then RC SEND READ LOCAL_INV",
            " a sends a receives b sends b receives states 3/3",
            " a sends [200 RNR retry counter exceeded] a receives b sends b receives states 6/3",
            "rxe does not always time out: some requests of it wait for ever",
        ),
        (
            "then RC SEND",
            " a sends [200 success op 0] a receives b sends b receives states 3/3",
            " a sends [200 RNR retry counter exceeded] a receives b sends b receives states 6/3",
            "",
        ),
    ],
)
def test_what_the_kernel_says_otherwise_is_known(
    asked: str, kernel: str, ours: str, reason: str
) -> None:
    assert why("kernel", asked, kernel, ours) == reason


@pytest.mark.parametrize("asked", ["bind_mw type 1", "end 1: window 0 length 10000 rights e"])
def test_a_window_before_rts_is_refused_only_with_an_answer(asked: str) -> None:
    assert why("written", asked, "EINVAL 0: receives", "0 0: receives")


def test_what_follows_an_explained_difference_is_of_another_case(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "asked").write_text("0\tSEND[0] flags 2\tEINVAL posted 0\n0\tthen\tnothing\n")
    (tmp_path / "written").write_text("0\tSEND[0] flags 2\t0 posted 1\n0\tthen\tsomething\n")
    assert compare("written", tmp_path / "asked", tmp_path / "written") == 0
    assert "1 cases, 0 first: a post before RTS" in capsys.readouterr().out
    assert compare("write-abi", tmp_path / "asked", tmp_path / "written") == 1


def test_programs_that_end_early_are_not_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "both").write_text("0\tended\t100\n")
    assert compare("write-abi", tmp_path / "both", tmp_path / "both") == 1
    assert "ended early" in capsys.readouterr().out


def test_nothing_is_not_alike(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert compare("write-abi", tmp_path / "empty", tmp_path / "empty") == 1
