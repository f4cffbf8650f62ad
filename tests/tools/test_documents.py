"""The README's example, the examples' programs and the documents' links do what they say."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from softhca.testing import FabricFaults
from softhca.tools.main import COMMANDS

TOP = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*TOP.glob("*.md"), *TOP.glob("docs/**/*.md")])


# Values that a peer sent lie in a receive buffer.
RECEIVED = """
import softhca as hca

def take(buffer: bytearray) -> tuple[hca.RemoteMemory, hca.QPInfo, hca.GID]:
    view = memoryview(buffer)
    hca.QPInfo.from_bytes(buffer[20:56])
    far, info = hca.RemoteMemory.from_bytes(buffer[:20]), hca.QPInfo.from_bytes(view[20:56])
    return far, info, hca.GID(view[56:72])
"""


def run_python(*arguments: str, cwd: Path | None = None) -> str:
    """Runs a program, any warning of which is an error; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return done.stdout


def code_blocks(document: Path, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", document.read_text(), re.M | re.S)


def shown(guide: str, begins: str) -> list[str]:
    """The lines that a guide shows of what a program prints."""
    blocks = code_blocks(TOP / "docs" / "guide" / guide, "text")
    (block,) = [block for block in blocks if block.startswith(begins)]
    return block.splitlines()


def test_the_readmes_example_runs_as_printed() -> None:
    (example,) = code_blocks(TOP / "README.md", "python")
    assert len([line for line in example.splitlines() if line.strip()]) <= 15
    printed = run_python("-c", example)
    assert printed == "SUCCESS b'over the wire, and straight into memory'\n"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("two_processes", ["immediate 0xf00d, all chunks in place: True", "wrote 1000000 bytes"]),
        ("shared_counter", ["the counter stands at 1000", "every ticket once: True"]),
        ("lost_wakeup", shown("waiting.md", "careless: ")),
        (
            "story_lost_wakeup",
            ["careless: seed", "b waits for a completion event", "careful: 100 seeds pass"],
        ),
        (
            "story_forgotten_fence",
            [
                "without a fence: LOC_PROT_ERR WR_FLUSH_ERR",
                "50000 ns, with a fence: SUCCESS SUCCESS",
            ],
        ),
        (
            "story_nth_call",
            [
                "create_qp call 1: ends with EBUSY, leaves 2 objects",
                "tidy: 0 ways out are wrong",
            ],
        ),
        ("story_incast", shown("testing.md", "without DCQCN: ")),
        ("story_lossy_goodput", ["one at a time, time-out 67 ms", "Gb/s"]),
        ("refusals", ["REM_ACCESS_ERR", "RNR_RETRY_EXC_ERR", "is now in ERR", "(EINVAL)"]),
    ],
)
def test_an_example_program(name: str, says: list[str]) -> None:
    printed = run_python(str(TOP / "examples" / f"{name}.py"))
    for text in says:
        assert text in printed


def test_type_checkers_accept_what_users_are_shown(tmp_path: Path) -> None:
    """The examples, the README's as well, by mypy's strict rules and the stubs of the package."""
    pytest.importorskip("mypy")
    (readmes,) = code_blocks(TOP / "README.md", "python")
    readme = tmp_path / "readme.py"
    readme.write_text(readmes)
    received = tmp_path / "received.py"
    received.write_text(RECEIVED)
    programs = [str(path) for path in sorted((TOP / "examples").glob("*.py"))]
    options = ["--strict", "--config-file=", f"--cache-dir={tmp_path / 'cache'}"]
    # Drawing is nobody's example, and matplotlib's types are not always there.
    options += ["--ignore-missing-imports", "--allow-untyped-calls"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *programs, str(readme), str(received)],
        capture_output=True,
        text=True,
        env={**os.environ, "MYPYPATH": str(TOP / "src")},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_example_is_tested() -> None:
    names = {path.stem for path in (TOP / "examples").glob("*.py")}
    stories = {"lost_wakeup", "forgotten_fence", "nth_call", "lossy_goodput", "incast"}
    others = {"two_processes", "shared_counter", "refusals", "lost_wakeup"}
    assert names == others | {f"story_{name}" for name in stories}


@pytest.mark.parametrize(
    "document",
    [d for d in DOCUMENTS if code_blocks(d, "python") and d.name != "README.md"],
    ids=lambda document: document.name,
)
def test_the_guides_examples_run_in_their_order(document: Path, tmp_path: Path) -> None:
    program = tmp_path / "guide.py"
    program.write_text("\n".join(code_blocks(document, "python")))
    printed = run_python(str(program), cwd=tmp_path).splitlines()
    told = re.findall(r"print\(error\)  # (.+)", program.read_text())
    assert [line for line in told if line not in printed] == []


def test_the_guide_to_testing_prints_what_it_says(tmp_path: Path) -> None:
    guide = TOP / "docs" / "guide" / "testing.md"
    program = tmp_path / "guide.py"
    program.write_text("\n".join(code_blocks(guide, "python")))
    printed = [line.rstrip() for line in run_python(str(program), cwd=tmp_path).splitlines()]
    assert printed[-3:] == shown("testing.md", "seed ")


def test_the_guide_names_what_faults_take() -> None:
    text = (TOP / "docs/guide/testing.md").read_text()
    table = text.partition("| word | what happens to packets |")[2].partition("\n\n")[0]
    words = re.findall(r"`(\w+)(?:\(([\w, ]+)\))?`", table)
    assert {word for word, _ in words} >= {"drop", "delay", "script"}
    for word, arguments in words:
        taken = inspect.signature(getattr(FabricFaults, word)).parameters
        assert set(re.findall(r"\w+", arguments)) <= set(taken), word


def test_the_readme_lists_every_command() -> None:
    listed = re.findall(r"^\| `softhca (\w+)", (TOP / "README.md").read_text(), re.M)
    assert sorted(listed) == sorted(command.name for command in COMMANDS)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(TOP)))
def test_links_lead_somewhere(document: Path) -> None:
    text = document.read_text()
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (document.parent / target).exists(), target
    # Paths in backticks, where they look like files of this repository.
    for path in re.findall(r"`((?:native|src|tests|docs|examples|bench)/[\w./-]+)`", text):
        assert (TOP / path).exists(), path
