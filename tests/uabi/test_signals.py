"""Signals that come while the supervisor answers."""

from __future__ import annotations

import os
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


# Sends a process that nobody has waited for signals, as fast as can be.
STORM = """
import os, signal, sys
while True:
    os.kill(int(sys.argv[1]), signal.SIGUSR1)
    os.kill(int(sys.argv[1]), signal.SIGUSR2)
"""

HEARS_ALL = """
import signal
numbers = [signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM]
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
print("ready", flush=True)
left = 20000
while (heard := signal.sigwait(numbers)) != signal.SIGTERM:
    left -= 1
    if left == 0:
        print("many", flush=True)
print(heard.name)
"""


@pytest.mark.parametrize("signals", [[signal.SIGUSR1], [signal.SIGSTOP, signal.SIGCONT]])
def test_a_signal_to_the_supervisor_changes_no_answer(signals: list[signal.Signals]) -> None:
    command = [sys.executable, "-m", "softhca", "run", "--", SYSTEM_PYTHON, "-c", OPENS]
    supervisor = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert supervisor.stdout is not None
    with supervisor, supervisor.stdout as told:
        assert told.readline() == "ready\n"
        while not select.select([told], [], [], 0)[0]:
            for number in signals:
                supervisor.send_signal(number)
        assert (told.readline(), supervisor.wait()) == ("wrong: []\n", 0)


def test_signals_may_come_faster_than_they_are_passed_on() -> None:
    command = [sys.executable, "-m", "softhca", "run", "--", SYSTEM_PYTHON, "-c", HEARS_ALL]
    supervisor = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert supervisor.stdout is not None
    with supervisor, supervisor.stdout as told:
        assert told.readline() == "ready\n"
        with subprocess.Popen([sys.executable, "-c", STORM, str(supervisor.pid)]) as storm:
            try:
                assert told.readline() == "many\n"
                supervisor.send_signal(signal.SIGTERM)
                assert told.readline() == "SIGTERM\n"
                # It has ended; the one who waits for it below is the only one that can free its
                # number.
                os.waitid(os.P_PID, supervisor.pid, os.WEXITED | os.WNOWAIT)
            finally:
                storm.kill()
        assert supervisor.wait() == 0
