"""Plants each bug, builds, and walks until a seed finds it.

    python tests/mutations/run.py [--seeds 300] [--work DIR] [--only WORD]

Prints a line for each bug, and exits with 1 if one was not found. Takes a compiler and the packages
that building softhca takes; the ordinary tests only check that each bug can be planted.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from bugs import BUGS, Bug

TOP = Path(__file__).resolve().parents[2]


def plant(bug: Bug, tree: Path) -> None:
    """Puts a bug into a copy of the sources."""
    file = tree / "native" / bug.file
    text = file.read_text()
    assert text.count(bug.right) == 1, f"{bug.name}: found {text.count(bug.right)} times"
    file.write_text(text.replace(bug.right, bug.wrong))


def build(tree: Path, folder: Path) -> None:
    """Builds the module of a tree."""
    if not (folder / "build.ninja").exists():
        options = ["-DSOFTHCA_BUILD_MODULE=ON", f"-DPython_EXECUTABLE={sys.executable}"]
        options += [f"-DPython_ROOT_DIR={sys.prefix}", "-DPython_FIND_VIRTUALENV=ONLY"]
        command = ["cmake", "-S", tree, "-B", folder, "-G", "Ninja", *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    command = ["cmake", "--build", folder, "--target", "_adapter"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    for module in folder.glob("_adapter*.so"):
        kept = tree / "src" / "softhca" / module.name
        kept.unlink(missing_ok=True)
        shutil.copy(module, kept)


def walk(tree: Path, seeds: int) -> tuple[bool, str]:
    """Runs the long check; returns whether it failed, and its last line."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(tree / "tests")]),
    }
    command = [sys.executable, "-W", "ignore", "-m", "simulation.long_check", "1", str(seeds)]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, cwd=tree, timeout=1800
        )
    except subprocess.TimeoutExpired:
        return True, "it hangs"
    lines = (done.stdout + done.stderr).strip().splitlines()
    first = next((line for line in lines if line.startswith("seed ")), "")
    return done.returncode != 0, f"{first}; {lines[-1] if lines else ''}"[:160]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    work = options.work or Path(tempfile.mkdtemp(prefix="softhca-mutations-"))
    tree, folder = work / "tree", work / "build"
    missed = 0
    ignored = shutil.ignore_patterns("build", "__pycache__", "*.so")
    for name in ("native", "src", "tests"):
        shutil.copytree(TOP / name, tree / name, dirs_exist_ok=True, ignore=ignored)
    for name in ("CMakeLists.txt", "pyproject.toml"):
        shutil.copy(TOP / name, tree / name)
    build(tree, folder)
    failed, line = walk(tree, options.seeds)
    print(f"{'without a bug':55} {'FAILS' if failed else 'passes'}: {line}", flush=True)
    missed += failed
    for bug in BUGS:
        if options.only not in bug.name:
            continue
        start = time.monotonic()
        plant(bug, tree)
        build(tree, folder)
        found, line = walk(tree, options.seeds)
        missed += not found
        seconds = time.monotonic() - start
        told = "found" if found else "MISSED"
        print(f"{bug.name:55} {told} ({seconds:.0f} s): {line}", flush=True)
        shutil.copy(TOP / "native" / bug.file, tree / "native" / bug.file)
        os.utime(tree / "native" / bug.file)
    print(f"{missed} missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
