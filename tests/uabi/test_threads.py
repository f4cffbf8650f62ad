"""Threads of programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .programs import compiled, needs_verbs_headers, run_under


@needs_verbs_headers
def test_a_thread_registers_memory_after_the_first_one_has_ended(tmp_path: Path) -> None:
    program = compiled("first_thread_ends", tmp_path)
    assert run_under(program).stdout == "registered\n"


def test_a_program_for_which_there_is_no_thread_left_is_refused() -> None:
    # As any error of a system call, which a supervisor outlives. The limit is none for root.
    program = """
import errno, os, resource
from softhca._adapter import Known, Listener
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
if os.getuid() == 0:
    os.setuid(65534)
listener = Listener(os.open("/dev/null", os.O_RDONLY), Known())
try:
    listener.start()
except OSError as error:
    print(errno.errorcode[error.errno], flush=True)
os._exit(0)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout == "EAGAIN\n", done.stderr
