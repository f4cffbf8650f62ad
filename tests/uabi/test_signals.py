"""Signals that come while the supervisor answers."""

from __future__ import annotations

import select
import signal
import subprocess
import sys

import pytest

from .programs import SYSTEM_PYTHON

# Opens and closes the device many times; every descriptor must be one of it.
OPENS = """
import os, signal
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
number = os.stat("/dev/infiniband/uverbs0").st_rdev
print("ready", flush=True)
wrong = []
for _ in range(2000):
    device = os.open("/dev/infiniband/uverbs0", os.O_RDWR | os.O_CLOEXEC)
    try:
        is_device = os.fstat(device).st_rdev == number
    except OSError:
        is_device = False
    if is_device:
        os.close(device)
    else:
        wrong.append(device)
print("wrong:", wrong)
"""


@pytest.mark.parametrize("signals", [[signal.SIGUSR1], [signal.SIGSTOP, signal.SIGCONT]])
def test_a_signal_to_the_supervisor_changes_no_answer(signals: list[signal.Signals]) -> None:
    command = [sys.executable, "-m", "softhca", "run", "--", SYSTEM_PYTHON, "-c", OPENS]
    supervisor = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert supervisor.stdout is not None
    with supervisor, supervisor.stdout as told:
        assert told.readline() == "ready\n"
        # Not faster than a handler in Python runs.
        while not select.select([told], [], [], 0.0001)[0]:
            for number in signals:
                supervisor.send_signal(number)
        assert told.readline() == "wrong: []\n"
