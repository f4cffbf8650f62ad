"""Answers to programs that have gone on, whose number may be another program's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

import softhca
from softhca.uabi.commands.call import Call
from softhca.uabi.mappings import mappings_from
from softhca.uabi.supervisor import Attended, Supervisor

from .programs import SYSTEM_PYTHON, wait_until

if TYPE_CHECKING:
    from softhca._adapter import Asked
    from softhca.uabi.context import Context

# Its first thread asks, and another one executes `sleep`, which has the first one's number.
_PROGRAM = """
import os, sys, threading
def go_on():
    open(sys.argv[1]).read()
    os.execv("/bin/sleep", ["sleep", "1000"])
threading.Thread(target=go_on).start()
os.open("/dev/infiniband/uverbs0", os.O_RDWR)
"""


class _Slow(Supervisor):
    """One that keeps what it is asked."""

    kept: tuple[Attended, Asked] | None = None

    def _answer(self, attended: Attended, asked: Asked) -> None:
        self.kept = attended, asked


def _name(process: int) -> str:
    """What it executes; nothing while its number goes from one thread of it to another."""
    try:
        return Path(f"/proc/{process}/comm").read_text().strip()
    except ProcessLookupError:
        return ""


def test_nothing_is_written_to_a_program_that_has_the_number_of_who_asked(tmp_path: Path) -> None:
    if not os.path.exists(SYSTEM_PYTHON) or not os.path.exists("/bin/sleep"):
        pytest.skip(f"not installed: {SYSTEM_PYTHON} or /bin/sleep")
    go_on = tmp_path / "go_on"
    os.mkfifo(go_on)
    with softhca.open() as device, _Slow([device]) as supervisor:
        program = supervisor.launch(SYSTEM_PYTHON, ["python", "-c", _PROGRAM, str(go_on)])
        wait_until(lambda: supervisor.serve_once(0) or supervisor.kept)
        assert supervisor.kept is not None
        attended, asked = supervisor.kept
        assert attended.listener.is_valid(asked)
        assert asked.task == program.process
        go_on.write_text("")
        wait_until(lambda: _name(program.process) == "sleep")
        wait_until(lambda: any(one.path == "[stack]" for one in mappings_from(asked.task, 0)))
        stack = next(one for one in mappings_from(asked.task, 0) if one.path == "[stack]")
        address = stack.last - 64
        before = asked.read(address, 8)
        assert before is not None
        call = Call(attended.listener, asked, cast("Context", None))
        with pytest.raises(OSError, match="does not wait"):
            call.write(address, b"overrun!")
        with pytest.raises(OSError, match="does not wait"):
            call.demand_waiting()
        assert asked.read(address, 8) == before
