"""Commands that are wrong get an errno, and harm nobody."""

from __future__ import annotations

import random
import sys
from pathlib import Path

from .programs import run_under

SEED = 20241
COMMANDS = 2000


def test_nearly_right_commands_are_answered_and_nothing_breaks() -> None:
    program = str(Path(__file__).with_name("command_fuzz.py"))
    for seed in (SEED, random.SystemRandom().getrandbits(31)):
        done = run_under(sys.executable, program, str(seed), str(COMMANDS), check=False)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        assert not done.stderr, f"{done.stdout}\n{done.stderr}"
        assert "done" in done.stdout


def test_wrong_commands_get_the_errno_of_the_kernel() -> None:
    done = run_under(
        sys.executable, str(Path(__file__).with_name("wrong_commands.py")), check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
