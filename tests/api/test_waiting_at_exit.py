"""Threads that still wait when the interpreter ends."""

from __future__ import annotations

import subprocess
import sys

# What was registered before softhca was imported runs after it has closed its devices: the thread
# has its error by then, and has said of it what it says.
PROGRAM = """
import atexit
import threading
atexit.register(lambda: thread.join())
import softhca as hca
{hook}
device = hca.open()
waits = threading.Event()
def wait():
    waits.set()
    {wait}
thread = threading.Thread(target=wait, daemon=True)
thread.start()
waits.wait()
"""
WAIT = "device.get_async_event()"


def end_of(**parts: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(**parts)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_a_daemon_thread_that_waits_ends_without_a_traceback() -> None:
    assert end_of(wait=WAIT, hook="") == ""


def test_errors_of_its_own_are_shown_as_ever() -> None:
    shown = end_of(wait=f"\n    try: {WAIT}\n    except OSError: 1 / 0", hook="")
    assert "ZeroDivisionError" in shown


def test_a_hook_of_the_programs_own_hears_of_it() -> None:
    hook = "threading.excepthook = lambda ended: print(ended.exc_value.errno == 19)"
    assert end_of(wait=WAIT, hook=hook) == "True\n"


# Only some of them are where they give up the GIL when the interpreter takes it away.
OPENERS = """
import threading
import softhca as hca
threading.excepthook = lambda ended: None
began = threading.Event()
def work():
    while True:
        hca.open().close()
        began.set()
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
began.wait()
"""


def test_daemon_threads_that_open_devices_do_not_crash_the_end() -> None:
    for _ in range(20):
        done = subprocess.run(
            [sys.executable, "-c", OPENERS], capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
