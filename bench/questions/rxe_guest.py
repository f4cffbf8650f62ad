"""How does softhca compare with the kernel's Soft-RoCE, both in the same guest?

The guest is the one of tests/interop, in software emulation where there is no other: everything is
many times slower than on the machine, for both, and readings may be 30 % apart.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

from bench.build import HERE, TOP
from bench.contest import Contest
from bench.findings import GIGABYTES, MICROSECONDS, Better, Finding, Goal
from bench.guest.rounds import MOST_DRIFT
from bench.ratios import Turn, summarise

TITLE = "against kernel rxe in the same guest"

GUEST_SECONDS = 1800
ASKED = {
    "latency": (f"{TITLE}: latency, SEND of 64 B", Goal(Better.LESS, 0.8), MICROSECONDS),
    "bytes": (f"{TITLE}: bytes, WRITE of 1 MiB", Goal(Better.MORE, 3), GIGABYTES),
}


def interop() -> ModuleType:
    """The script that the interoperability tests start the guest with."""
    path = TOP / "tests" / "interop" / "run"
    module = ModuleType("interop_run")
    module.__file__ = str(path)
    SourceFileLoader(module.__name__, str(path)).exec_module(module)
    return module


def run_guest(contest: Contest) -> str:
    """Brings softhca and the benches into the guest; returns what was printed there."""
    guest = interop()
    try:
        vm = guest.find_vm()
        with tempfile.TemporaryDirectory(prefix="bench-guest-") as temporary:
            wheel_folder, share = Path(temporary, "built"), Path(temporary, "share")
            wheel_folder.mkdir()
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(HERE, share / "bench", ignore=ignored)
            shutil.copy(HERE / "guest" / "guest.sh", share / "guest.sh")
            shutil.unpack_archive(guest.build_wheel(wheel_folder), share / "site", "zip")
            words = [str(contest.rounds), str(6 * contest.seconds)]
            environment = {**os.environ, "RXEVM_TIMEOUT": str(GUEST_SECONDS)}
            done = subprocess.run(
                [vm, share, *words], env=environment, stdout=subprocess.PIPE, text=True
            )
    except SystemExit:
        raise OSError("the guest cannot be had here") from None
    if done.returncode != 0:
        raise OSError(f"the guest ended with status {done.returncode}: {done.stdout[-500:]}")
    return done.stdout


def ask(contest: Contest) -> Iterator[Finding]:
    """The probe is rxe itself."""
    for line in run_guest(contest).splitlines():
        if not line.startswith("{"):
            continue
        answer = json.loads(line)
        print(f"  {line}", file=sys.stderr)
        what, goal, unit = ASKED[answer["what"]]
        summary = summarise([Turn(*turn) for turn in answer["turns"]], MOST_DRIFT)
        yield Finding(what, goal, "softhca", "of rxe", unit, {"softhca": summary})
