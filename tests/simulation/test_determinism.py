"""A run is a function of its seed and its program.

SOFTHCA_SEEDS in the environment runs more seeds, and SOFTHCA_OTHER_PYTHON names another Python that
has the package, to compare with.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SEEDS = int(os.environ.get("SOFTHCA_SEEDS", "40"))
TESTS = Path(__file__).resolve().parents[1]


def run(python: str, hash_seed: int, threads: bool) -> list[str]:
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(TESTS)}
    if "PYTHONPATH" in os.environ:
        environment["PYTHONPATH"] += os.pathsep + os.environ["PYTHONPATH"]
    code = "import sys; sys.setswitchinterval(1e-6); " if threads else ""
    code += f"import sys; sys.argv = ['', '1', '{SEEDS}']; import runpy; "
    code += "runpy.run_module('simulation.random_run', run_name='__main__')"
    done = subprocess.run(
        [python, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_same_seeds_give_the_same_traces() -> None:
    first = run(sys.executable, 1, False)
    assert len(first) == SEEDS
    assert len({line.split()[1] for line in first}) == SEEDS  # And others, others.
    other = os.environ.get("SOFTHCA_OTHER_PYTHON", sys.executable)
    assert run(other, 2, True) == first
