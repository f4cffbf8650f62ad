"""Completion events of many queues through one channel: none is lost."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from .programs import run_under

SOURCE = Path(__file__).with_name("many_events.c")
MESSAGES = 200

pytestmark = pytest.mark.skipif(
    shutil.which("cc") is None or not Path("/usr/include/infiniband/verbs.h").exists(),
    reason="not installed: a C compiler and libibverbs-dev",
)


@pytest.mark.parametrize("doorbells", ["asked", "written"])
def test_every_event_comes_when_eight_pairs_send_both_ways(tmp_path: Path, doorbells: str) -> None:
    program = tmp_path / "many_events"
    subprocess.run(["cc", "-O2", "-o", program, SOURCE, "-libverbs"], check=True)
    done = run_under(str(program), str(MESSAGES), options=("--doorbells", doorbells))
    assert done.stdout.startswith(f"{2 * 2 * 8 * MESSAGES} completions")
