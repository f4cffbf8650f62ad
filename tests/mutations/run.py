"""Plants each bug, builds, and runs the long check until a seed finds it.

    python tests/mutations/run.py [--seeds 300] [--work DIR] [--only WORD]

Prints a line for each bug as it goes, then a table that says how many seeds each of them took, and
exits with 1 if one was not found, or if the check fails without any. Takes a compiler and the
packages that building softhca takes; the ordinary tests only check that each bug can be planted.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

from bugs import BUGS, Bug

TOP = Path(__file__).resolve().parents[2]
# A bug may well make a walk wait for ever; without one a seed takes a tenth of a second.
SECONDS = 900


class Outcome(NamedTuple):
    """What the long check made of a tree.

    Attributes:
        seeds: Seeds until one failed; None if all passed.
        told: What it said.
    """

    seeds: int | None
    told: str


def plant(bug: Bug, tree: Path) -> str:
    """Puts a bug into a copy of the sources; returns what the file was."""
    file = tree / "native" / bug.file
    text = file.read_text()
    assert text.count(bug.right) == 1, f"{bug.name}: found {text.count(bug.right)} times"
    file.write_text(text.replace(bug.right, bug.wrong))
    return text


def build(tree: Path, folder: Path) -> None:
    """Builds the module of a tree."""
    if not (folder / "build.ninja").exists():
        options = ["-DSOFTHCA_BUILD_MODULE=ON", f"-DPython_EXECUTABLE={sys.executable}"]
        options += ["-DSOFTHCA_WHOLE_PROGRAM=OFF"]
        options += [f"-DPython_ROOT_DIR={sys.prefix}", "-DPython_FIND_VIRTUALENV=ONLY"]
        options += ["-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O1"]
        command = ["cmake", "-S", str(tree), "-B", str(folder), "-G", "Ninja", *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    command = ["cmake", "--build", str(folder), "--target", "_adapter"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"it does not build:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    for module in folder.glob("_adapter*.so"):
        kept = tree / "src" / "softhca" / module.name
        kept.unlink(missing_ok=True)
        shutil.copy(module, kept)


def long_check(tree: Path, seeds: int) -> Outcome:
    """Runs the long check of a tree."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(tree / "tests")]),
    }
    command = [sys.executable, "-W", "ignore", "-m", "simulation.long_check", "1", str(seeds)]
    done = subprocess.run(
        ["timeout", str(SECONDS), *command],
        env=environment,
        capture_output=True,
        text=True,
        cwd=tree,
    )
    if done.returncode == 0:
        return Outcome(None, f"{seeds} seeds pass")
    failed = re.search(r"^seed (\d+) fails: (.*)", done.stdout, re.M)
    if failed is not None:
        return Outcome(int(failed[1]), failed[2][:100])
    last = (done.stdout + done.stderr).strip().splitlines()
    return Outcome(1, f"exit {done.returncode}: {last[-1] if last else 'nothing said'}"[:100])


def copied(work: Path) -> Path:
    """Copies what is built and run."""
    tree = work / "tree"
    ignored = shutil.ignore_patterns("build", "__pycache__", "*.so")
    for name in ("native", "src", "tests"):
        shutil.copytree(TOP / name, tree / name, dirs_exist_ok=True, ignore=ignored)
    for name in ("CMakeLists.txt", "pyproject.toml"):
        shutil.copy(TOP / name, tree / name)
    return tree


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    work = options.work or Path(tempfile.mkdtemp(prefix="softhca-mutations-"))
    tree, folder = copied(work), work / "build"
    build(tree, folder)
    sound = long_check(tree, options.seeds)
    print(f"without a bug: {sound.told}", flush=True)
    outcomes: dict[str, Outcome] = {}
    for bug in BUGS:
        if options.only not in bug.name:
            continue
        start = time.monotonic()
        text = plant(bug, tree)
        build(tree, folder)
        outcome = outcomes[bug.name] = long_check(tree, options.seeds)
        seconds = time.monotonic() - start
        print(f"{bug.name} ({seconds:.0f} s): {outcome.told}", flush=True)
        (tree / "native" / bug.file).write_text(text)
    survivors = [name for name, outcome in outcomes.items() if outcome.seeds is None]
    print(f"\n{'bug':55} {'seeds':>7}  found by")
    for name, outcome in outcomes.items():
        seeds = "SURVIVES" if outcome.seeds is None else str(outcome.seeds)
        print(f"{name:55} {seeds:>8}  {outcome.told}")
    print(f"{len(outcomes)} bugs, {len(survivors)} survive {options.seeds} seeds")
    return 1 if survivors or sound.seeds is not None else 0


if __name__ == "__main__":
    sys.exit(main())
