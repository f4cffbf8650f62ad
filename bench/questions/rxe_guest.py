"""How does softhca compare with the kernel's Soft-RoCE, both in the same guest?

The guest is the one of tests/interop, in software emulation: everything is many times slower than
on the machine, for both, what runs in user space more than what the kernel does, and readings may
be 30 % apart. rxe is driven by perftest, in C, and softhca from Python, both between two processes
of the guest: over shared memory, which softhca chooses there, and over UDP, as rxe does. Bare
sockets stand beside.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

from bench.build import HERE, TOP, probe_program
from bench.contest import Contest
from bench.findings import GIGABYTES, MICROSECONDS, Better, Finding, Goal
from bench.guest.rounds import MOST_DRIFT
from bench.ratios import Summary, Turn, summarise

TITLE = "against kernel rxe in the same guest"

GUEST_SECONDS = 900
# The emulator's clocks cost a system call and an exit each time, unless the guest is told that
# processors of an emulator count alike, as those of other machines do.
KERNEL_WORDS = "tsc=reliable clocksource=tsc"
PROBES = ("udp_round_trip", "udp_stream")
ASKED = {
    "latency": ("latency, SEND of 64 B", Goal(Better.LESS, 0.8), MICROSECONDS),
    "bytes": ("bytes, WRITE of 1 MiB", Goal(Better.MORE, 3), GIGABYTES),
}
LINKS = {"shared": "shared memory", "udp": "UDP"}
BARE = "bare UDP sockets, in C"


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
            (share / "probes").mkdir()
            for name in PROBES:
                shutil.copy(probe_program(name, "-static"), share / "probes" / name)
            shutil.unpack_archive(guest.build_wheel(wheel_folder), share / "site", "zip")
            words = [str(contest.rounds), str(4 * contest.seconds)]
            environment = {
                **os.environ,
                "RXEVM_TIMEOUT": str(GUEST_SECONDS),
                "RXEVM_APPEND": KERNEL_WORDS,
            }
            done = subprocess.run(
                [vm, share, *words], env=environment, stdout=subprocess.PIPE, text=True
            )
    except SystemExit:
        raise OSError("the guest cannot be had here") from None
    if done.returncode != 0:
        raise OSError(f"the guest ended with status {done.returncode}: {done.stdout[-500:]}")
    return done.stdout


def findings_of(output: str) -> Iterator[Finding]:
    """What the lines of the guest say: a finding for each link, with bare sockets beside UDP."""
    answers: dict[str, dict[str, Summary | None]] = {}
    for line in output.splitlines():
        if not line.startswith("{"):
            continue
        answer = json.loads(line)
        summary = summarise([Turn(*turn) for turn in answer["turns"]], MOST_DRIFT)
        answers.setdefault(answer["what"], {})[answer["who"]] = summary
    for what, by_who in answers.items():
        words, goal, unit = ASKED[what]
        for link, name in LINKS.items():
            summaries = {"softhca": by_who[link]}
            if link == "udp":
                summaries[BARE] = by_who["bare"]
            yield Finding(f"{TITLE}: {words}, {name}", goal, "softhca", "of rxe", unit, summaries)


def ask(contest: Contest) -> Iterator[Finding]:
    """The probe is rxe itself."""
    yield from findings_of(run_guest(contest))
