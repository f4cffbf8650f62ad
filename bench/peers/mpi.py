"""mpi4py, on each MPI that one of the interpreters here has."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.peers.absent import AbsentError
from bench.two_sides import SideError, TwoSides

# Launchers by what the MPI calls itself.
LAUNCHERS = {"Open MPI": "mpiexec.openmpi", "MPICH": "mpiexec.mpich"}
OPEN_MPI_WORDS = ("--allow-run-as-root", "--oversubscribe", "--bind-to", "none")


@functools.cache
def _pythons() -> dict[str, str]:
    """Interpreters by the MPI that their mpi4py uses; $SOFTHCA_BENCH_PYTHONS names more."""
    found: dict[str, str] = {}
    named = os.environ.get("SOFTHCA_BENCH_PYTHONS", "").split(os.pathsep)
    program = "from mpi4py import MPI; print(MPI.Get_library_version())"
    for python in filter(None, [*named, sys.executable, "/usr/bin/python3"]):
        try:
            done = subprocess.run(
                [python, "-c", program], capture_output=True, text=True, timeout=30
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        for name in LAUNCHERS:
            if done.returncode == 0 and name in done.stdout.replace("MPICH Version", "MPICH"):
                found.setdefault(name, python)
    return found


def sides(name: str) -> TwoSides:
    """Starts both ranks.

    Raises:
        AbsentError: If no interpreter here has mpi4py on that MPI.
    """
    python = _pythons().get(name)
    if python is None:
        raise AbsentError(f"no Python here has mpi4py on {name} (SOFTHCA_BENCH_PYTHONS)")
    beside = Path(python).parent / "mpiexec"
    launcher = str(beside) if beside.exists() else shutil.which(LAUNCHERS[name])
    if launcher is None or (str(beside) == "/usr/bin/mpiexec" and shutil.which(LAUNCHERS[name])):
        launcher = shutil.which(LAUNCHERS[name])
    if launcher is None:
        raise AbsentError(f"no {LAUNCHERS[name]}")
    words = [launcher, *(OPEN_MPI_WORDS if name == "Open MPI" else ()), "-n", "2"]
    try:
        return TwoSides("bench.peers.mpi_side", python=python, launcher=words)
    except SideError as error:
        raise AbsentError(str(error).strip().splitlines()[-1]) from None
