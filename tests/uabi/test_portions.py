"""What a program leaves is destroyed in portions: others of the supervisor have turns meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import softhca
from softhca._adapter import Asked
from softhca.uabi.commands.pd import OwnedPD
from softhca.uabi.program import Program
from softhca.uabi.supervisor import Attended, Supervisor

from .programs import SYSTEM_PYTHON, needs_pyverbs, wait_until

pytestmark = needs_pyverbs

MANY = 300
LEAVES_MUCH = f"""
import sys, time
from pathlib import Path
from pyverbs.device import Context
from pyverbs.pd import PD
context = Context(name="rxe0")
left = [PD(context) for _ in range({MANY})]
Path(sys.argv[1]).touch()
time.sleep(1000)
"""
# Says when it is about to ask, waits until it may, and says what it was told.
ASKS = """
import os, sys
from pathlib import Path
from pyverbs.device import Context
from pyverbs.pd import PD
context = Context(name="rxe0") if sys.argv[3] == "asks" else None
Path(sys.argv[1]).touch()
Path(sys.argv[2]).read_text()
Context(name="rxe0") if context is None else PD(context)
"""
# Starts the other one, which dies, and goes on as above: both are one tree of programs.
BEGETS = """
import subprocess, sys
other = subprocess.Popen([sys.executable, "-c", sys.argv[4], sys.argv[5]])
Path(sys.argv[5] + " process").write_text(str(other.pid))
"""


class Watched(Supervisor):
    """A supervisor that says in what order it destroys and answers."""

    def __init__(self, device: softhca.Device, order: list[str]) -> None:
        super().__init__([device])
        self.order = order

    def _answer(self, attended: Attended, asked: Asked) -> None:
        is_open = asked.call == "open" and self._device_of(asked) is not None
        self.order.append("opened" if is_open else asked.call)
        super()._answer(attended, asked)

    def start(self, text: str, *arguments: str) -> Program:
        return self.launch(SYSTEM_PYTHON, [SYSTEM_PYTHON, "-c", text, *arguments])

    def is_asked(self, count: int) -> bool:
        """Whether so many descriptors have something to tell; nothing of it is done."""
        return len(self._selector.select(0)) >= count


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is destroyed and answered, as it happens."""
    happened: list[str] = []
    destroy = OwnedPD.destroy

    def recorded(pd: OwnedPD) -> dict[str, int]:
        happened.append("destroyed")
        return destroy(pd)

    monkeypatch.setattr(OwnedPD, "destroy", recorded)
    return happened


@pytest.fixture
def supervisor(order: list[str]) -> Iterator[Watched]:
    with softhca.open() as device, Watched(device, order) as supervisor:
        yield supervisor


def serve_until_there(supervisor: Supervisor, *files: Path) -> None:
    wait_until(lambda: supervisor.serve_once(0.01) or all(file.exists() for file in files))


@pytest.mark.parametrize(("does", "waits"), [("asks", False), ("opens", True)])
def test_who_has_begun_before_has_turns_meanwhile(
    supervisor: Watched, tmp_path: Path, does: str, waits: bool
) -> None:
    left, ready, go = (tmp_path / name for name in ("left", "ready", "go"))
    os.mkfifo(go)
    victim = supervisor.start(LEAVES_MUCH, str(left))
    asker = supervisor.start(ASKS, str(ready), str(go), does)
    serve_until_there(supervisor, left, ready)
    assert "destroyed" not in supervisor.order
    supervisor.order.clear()
    # Both are known before anything is done: that it has died, and that the other one asks.
    victim.signal(9)
    wait_until(lambda: supervisor.is_asked(2))
    go.write_text("go")
    wait_until(lambda: supervisor.is_asked(4))
    assert supervisor.serve(asker) == 0
    answered = supervisor.order.index("opened" if waits else "ioctl")
    before = supervisor.order[:answered].count("destroyed")
    assert before == MANY if waits else 0 < before < MANY
    everything = MANY if waits else MANY + 1  # Who asked has made one, too.
    wait_until(
        lambda: supervisor.serve_once(0.01) or supervisor.order.count("destroyed") == everything
    )


def test_who_may_know_that_it_is_closed_finds_it_gone(supervisor: Watched, tmp_path: Path) -> None:
    """As behind a close(2) of the kernel's, which returns when everything is gone."""
    left, ready, go = (tmp_path / name for name in ("left", "ready", "go"))
    os.mkfifo(go)
    both = ASKS.replace("Path(sys.argv[1])", f"{BEGETS}Path(sys.argv[1])", 1)
    asker = supervisor.start(both, str(ready), str(go), "asks", LEAVES_MUCH, str(left))
    serve_until_there(supervisor, left, ready)
    supervisor.order.clear()
    os.kill(int((tmp_path / "left process").read_text()), 9)
    wait_until(lambda: supervisor.is_asked(1))
    go.write_text("go")
    wait_until(lambda: supervisor.is_asked(2))
    assert supervisor.serve(asker) == 0
    answered = supervisor.order.index("ioctl")
    assert supervisor.order[:answered].count("destroyed") == MANY


def test_what_is_begun_is_finished_when_the_supervisor_ends(
    order: list[str], tmp_path: Path
) -> None:
    left = tmp_path / "left"
    with softhca.open() as device, Watched(device, order) as supervisor:
        victim = supervisor.start(LEAVES_MUCH, str(left))
        serve_until_there(supervisor, left)
        victim.signal(9)
        assert supervisor.serve(victim) == -9
    assert order.count("destroyed") == MANY
