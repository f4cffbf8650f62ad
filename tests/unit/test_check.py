"""What ./check says before it can do anything."""

from __future__ import annotations

import ast
import os
import select
import signal
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

CHECK = Path(__file__).parents[2] / "check"


def loaded() -> ModuleType:
    check = ModuleType("check")
    check.__file__ = str(CHECK)
    SourceFileLoader("check", str(CHECK)).exec_module(check)
    return check


@pytest.mark.parametrize("minor", [8, 9, 10])
def test_a_python_that_is_too_old_reads_it_and_is_refused_by_name(
    minor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ast.parse(CHECK.read_text(), feature_version=(3, minor))
    monkeypatch.setattr(sys, "argv", ["check", "lint"])
    check = loaded()
    monkeypatch.setattr(check, "prepare", lambda: pytest.fail("it began"))
    monkeypatch.setattr(sys, "version_info", (3, minor, 4, "final", 0))
    with pytest.raises(SystemExit, match=rf"needs Python 3\.11 or newer, and .* is 3\.{minor}\.4"):
        check.main()


def test_an_environment_of_such_a_python_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setenv("SOFTHCA_VENV", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["check", "lint"])
    with pytest.raises(SystemExit, match="remove it"):
        loaded().main()


def test_each_part_has_what_runs_it() -> None:
    check = loaded()
    assert {*check.PLAIN_PARTS, *check.SANITIZERS, "python"} == set(check.PARTS)


def test_a_program_that_hangs_is_ended_and_counts_as_failed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    check = loaded()
    monkeypatch.setattr(check, "LONGEST_TESTS_S", 0.5)
    code = """
import os, signal
os.fork()  # Who has its output too, and outlives it.
print("1 passed in 0.1s", flush=True)
print("at", end=" ", flush=True)
signal.alarm(20)
signal.pause()
"""
    assert not check.run_tests(sys.executable, "-c", code)
    assert check.totals == {"failed": 1}
    shown = capfd.readouterr().out
    assert "ENDED:" in shown


def test_lines_of_a_program_come_whole_and_its_figures_count(
    capfd: pytest.CaptureFixture[str],
) -> None:
    check = loaded()
    code = "print('\\xff', 'x' * 100_000); print('3 passed, 2 skipped in 0.1s', end='')"
    assert check.run_tests(sys.executable, "-c", code)
    assert check.totals == {"passed": 3, "skipped": 2}
    assert "x" * 100_000 + "\n3 passed" in capfd.readouterr().out


# Its tests wait for ever, and so does what builds beside them; who lives has the FIFO open.
WAITING = """
import sys
from importlib.machinery import SourceFileLoader
from types import ModuleType

_, path, fifo = sys.argv
check = ModuleType("check")
check.__file__ = path
SourceFileLoader("check", path).exec_module(check)
say = f"f = open({fifo!r}, 'w'); print(file=f, flush=True)"
wait = f"import signal; {say}; signal.alarm(100); signal.pause()"
waiting = [sys.executable, "-c", wait]
check.prepare = lambda: None
check.sanitized_build = lambda part, jobs: [["true"], waiting]
check.check_python = lambda arguments: check.run_tests(*waiting)
sys.argv[1:] = ["python", "tsan"]
sys.exit(check.main())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_what_runs_and_what_builds_beside_it(
    number: signal.Signals, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    heard = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    command = [sys.executable, "-c", WAITING, str(CHECK), str(fifo)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        lines = b""
        while len(lines) < 2 and process.poll() is None:
            if select.select([heard], [], [], 0.05)[0]:
                lines += os.read(heard, 2 - len(lines))
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode in (128 + number, -number)
    assert select.select([heard], [], [], 60)[0]
    assert os.read(heard, 1) == b""
    os.close(heard)
