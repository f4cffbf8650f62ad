"""A program that closes descriptors which are not its own, as some do before they go on."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import contextlib, os, threading, softhca

device = softhca.open()
channel = device.create_comp_channel()
{before}
os.closerange(3, 1024)
channel.close()
device.close()
print("closed")
"""

BEFORE = {
    "nobody waits": "",
    "somebody has waited": """
with contextlib.suppress(TimeoutError):
    channel.get_event(0.05)
""",
    "somebody waits": """
def wait():
    with contextlib.suppress(softhca.VerbsError):
        channel.get_event()
threading.Thread(target=wait, daemon=True).start()
with contextlib.suppress(TimeoutError):
    channel.get_event(0.05)
""",
}


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE.keys())
def test_a_device_can_be_closed_whose_descriptors_are_gone(before: str) -> None:
    program = [sys.executable, "-c", PROGRAM.format(before=before)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("closed\n", 0), done.stderr
