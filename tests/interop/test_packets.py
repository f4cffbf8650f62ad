"""Packets that are nearly right: softhca says the same each time, and what differs is found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.uabi.programs import SYSTEM_PYTHON, needs_pyverbs

GUEST = Path(__file__).with_name("guest")
sys.path.insert(0, str(GUEST))

from packet_compare import compare, with_past  # noqa: E402

ADDRESS, PEER = "127.77.1.1", "127.77.1.2"
SEED = 1
CASES = 64


def listed() -> str:
    """What softhca makes of the first cases, but for those that ask: they ask again in time."""
    run = [sys.executable, "-m", "softhca", "run", "--address", ADDRESS, "--"]
    program = [SYSTEM_PYTHON, str(GUEST / "packet_list.py"), str(SEED), "0", str(CASES)]
    words = [*run, *program, "--to", ADDRESS, "--from", PEER]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\tstate\t") == CASES
    lines = done.stdout.splitlines(keepends=True)
    return "".join(line for line in lines if int(line.split("\t")[0]) % 3 != 2)


@needs_pyverbs
def test_what_softhca_makes_of_packets_depends_on_them_alone(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).write_text(listed())
    assert compare(tmp_path / "one", tmp_path / "other") == 0
    assert (tmp_path / "one").read_text() == (tmp_path / "other").read_text()


ASKED = "0\tRC psn 000000\t-\n"
ACKED = "RC_ACK +0 syndrome 1f msn 1"


@pytest.mark.parametrize(
    ("step", "kernel", "ours", "status", "printed"),
    [
        ("RC_SEND_ONLY +0", ACKED, ACKED, 0, "1 cases, 0 differ, 0 unexplained"),
        ("RC_SEND_ONLY +0", f"{ACKED}; [0 op 128 len 0 grh]", f"{ACKED}; [0 op 128 len 0]", 0, ""),
        ("RC_SEND_ONLY +0", ACKED, "-", 1, "case 0: RC_SEND_ONLY +0"),
        ("RC_SEND_ONLY +0 silent", "-", ACKED, 0, "1 cases, 0 first: a message that asks"),
        ("RC_READ +0 of all+0 length 8", "RC_RESPONSE_LAST +0", "RC_RESPONSE_ONLY +0", 1, ""),
        ("RC_SEND_FIRST +0 bytes 256", ACKED, "RC_ACK +0 syndrome 61 msn 0", 1, "1 unexplained"),
        ("RC_SEND_FIRST +0 bytes 255", ACKED, "RC_ACK +0 syndrome 61 msn 0", 0, "0 unexplained"),
        ("RC_ACK +0 syndrome 9f msn 1", "[0 op 1]", "[0 BAD_RESP_ERR]", 0, "reserved syndrome"),
        ("RC_ACK +0 syndrome 1f msn 1", "[0 op 1]", "[0 BAD_RESP_ERR]", 1, "1 unexplained"),
        ("RC_ATOMIC_ACK +0 syndrome 21 msn 1", "[0 op 3]", "[0 BAD_RESP_ERR]", 0, "brings"),
        ("RC_ATOMIC_ACK +0 syndrome 1f msn 1", "[2 op 0]", "[2 BAD_RESP_ERR]", 0, "no acknowledge"),
        ("RC_ATOMIC_ACK +0 syndrome 1f msn 1", "[2 op 3]", "[2 BAD_RESP_ERR]", 1, "1 unexplained"),
        ("UD_SEND_ONLY +2 bytes 256", "[3 LOC_QP_OP_ERR]", "[3 LOC_LEN_ERR]", 0, "class E"),
    ],
)
def test_a_difference_is_explained_or_fails(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    step: str,
    kernel: str,
    ours: str,
    status: int,
    printed: str,
) -> None:
    for name, said in (("kernel", kernel), ("ours", ours)):
        (tmp_path / name).write_text(f"{ASKED}0\t{step}\t{said}\n")
    assert compare(tmp_path / "kernel", tmp_path / "ours") == status
    assert printed in capsys.readouterr().out


@pytest.mark.parametrize(
    ("before", "then", "told"),
    [
        (("RC_SEND_ONLY +1", "RC_ACK +0 syndrome 2c msn 0"), "RC_SEND_ONLY +0", " after 2c"),
        (("RC_READ +0 of all+0 length 8", "RC_RESPONSE_ONLY +0"), "RC_READ +0", ""),
        (("RC_READ +0", "RC_RESPONSE_ONLY +0 syndrome 1f msn 1"), "RC_READ +0", " repeats"),
        (("UC_SEND_FIRST +0 bytes 256", "-"), "UC_SEND_ONLY +1", " anew"),
        (("UC_SEND_FIRST +0 bytes 25", "-"), "UC_SEND_LAST +1", " broken"),
        (("ask SEND:8 READ:8", "RC_SEND_ONLY +0; RC_READ +1"), "RC_ACK +0", ""),
        (("ask SEND:8 READ:8", "RC_SEND_ONLY +0; RC_READ +1"), "RC_ACK +1", " lost skips"),
        (("ask SEND:8", "RC_SEND_ONLY +0"), "RC_ACK +0 syndrome 60", " lost"),
        (("again from RESET", "-"), "RC_SEND_ONLY +0", ""),
    ],
)
def test_a_packet_is_told_with_its_past(before: tuple[str, str], then: str, told: str) -> None:
    assert with_past([before, (then, "-")])[1][0] == then + told
