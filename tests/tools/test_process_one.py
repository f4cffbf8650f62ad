"""Commands that are process 1 of a container, whom the kernel spares signals without a handler."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

UNSHARE = ("unshare", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc")


@pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no unshare")
@pytest.mark.parametrize("words", [("perf", "write_lat"), ("pingpong",)], ids=["perf", "pingpong"])
def test_it_ends_by_sigterm(words: tuple[str, ...]) -> None:
    if subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("there are no user and PID namespaces to be had")
    command = [*UNSHARE, sys.executable, "-m", "softhca", *words, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as outside:
        try:
            assert outside.stderr is not None
            assert "waiting" in outside.stderr.readline()
            first = Path(f"/proc/{outside.pid}/task/{outside.pid}/children").read_text()
            os.kill(int(first), signal.SIGTERM)
            _, errors = outside.communicate(timeout=60)
        finally:
            outside.kill()
    assert outside.returncode == 128 + signal.SIGTERM
    assert errors == ""
