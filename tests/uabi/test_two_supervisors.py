"""Two supervisors are two hosts on the wire."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from .pair import listens
from .programs import free_port, needs, run_under, wait_until

MESSAGES = "200"
BYTES = 4096
PINGPONG = ("ibv_rc_pingpong", "-g", "0", "-n", MESSAGES, "-s", str(BYTES), "-c")
# Its ends wait for each other before they go: who has lost the acknowledgement of the last message
# finds somebody who repeats it.
LATENCY = ("ib_send_lat", "-F", "-d", "rxe0", "-x", "0", "-n", MESSAGES, "-s", str(BYTES))


@needs("ibv_rc_pingpong", "ib_send_lat")
@pytest.mark.parametrize(
    ("program", "loss", "says"),
    [(PINGPONG, "0", f"{MESSAGES} iters in"), (LATENCY, "0.03", rf"{BYTES}\s+{MESSAGES}\s")],
    ids=["whole", "lossy"],
)
def test_messages_go_from_host_to_host(
    tmp_path: Path, program: tuple[str, ...], loss: str, says: str
) -> None:
    port = free_port()
    command = [*program, "-p", str(port)]
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
        assert re.search(says, text), text
    assert capture.stat().st_size > 2 * int(MESSAGES) * BYTES
