"""Two supervisors are two hosts on the wire."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .pair import listens
from .programs import free_port, needs, run_under, wait_until

MESSAGES = "200"


@needs("ibv_rc_pingpong")
@pytest.mark.parametrize("loss", ["0", "0.01"])
def test_messages_go_from_host_to_host(tmp_path: Path, loss: str) -> None:
    port = free_port()
    command = ["ibv_rc_pingpong", "-g", "0", "-n", MESSAGES, "-c", "-p", str(port)]
    capture = tmp_path / "server.pcapng"
    server = subprocess.Popen(
        [sys.executable, "-m", "softhca", "run", "--capture", str(capture), "--", *command],
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: listens(port) or server.poll() is not None)
    client = run_under(*command, "127.0.0.1", options=("--loss", loss)).stdout
    printed = server.communicate(timeout=120)[0]
    assert server.returncode == 0, printed
    for text in (client, printed):
        assert f"{MESSAGES} iters in" in text
    assert capture.stat().st_size > 2 * int(MESSAGES) * 1024
