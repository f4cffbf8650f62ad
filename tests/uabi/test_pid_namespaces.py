"""Supervisors in PID namespaces, where processes have other numbers than outside."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest

from .programs import needs

SOFTHCA = (sys.executable, "-m", "softhca")
NAME = "some-host"
# With the /proc from outside.
UNSHARE = ("unshare", "--map-root-user", "--pid", "--fork", "--kill-child")


@pytest.fixture(autouse=True)
def own_directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sockets lie here alone; the whole path of one has to fit into 107 bytes."""
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        monkeypatch.setenv("XDG_RUNTIME_DIR", place)
        yield


@pytest.fixture(autouse=True)
def _demand_namespaces() -> None:
    tried = subprocess.run([*UNSHARE, "true"], capture_output=True, timeout=60, check=False)
    if tried.returncode != 0:
        pytest.skip("there are no user and PID namespaces to be had")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


@needs("unshare")
@pytest.mark.parametrize(
    "words",
    [("run", "--", "true"), ("run", "--attach", NAME, "--", "true"), ("serve", NAME)],
    ids=["run", "attach", "serve"],
)
def test_the_proc_of_other_processes_is_refused(words: tuple[str, ...]) -> None:
    done = run(*UNSHARE, *SOFTHCA, *words)
    assert done.returncode == 1
    assert "/proc shows the processes of another PID namespace" in done.stderr


@needs("unshare")
def test_a_supervisor_that_cannot_see_programs_lets_none_in() -> None:
    words = [*UNSHARE, "--mount-proc", *SOFTHCA, "serve", NAME]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as inside:
        try:
            assert inside.stdout is not None
            assert inside.stdout.readline().startswith(NAME)
            done = run(*SOFTHCA, "run", "--attach", NAME, "--", "true")
        finally:
            inside.kill()
    assert done.returncode == 1
    assert "the supervisor is in another PID namespace" in done.stderr
