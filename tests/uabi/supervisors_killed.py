#!/usr/bin/env python3
"""Kills supervisors at random moments: `supervisors_killed.py SEED COUNT`.

Every program must go with its supervisor, and nothing be left: no process, no directory. Exits
with 1 where that does not hold.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM = """
import os, subprocess, sys
subprocess.Popen(["sleep", "1000"])
print(os.getpid(), flush=True)
while True:
    descriptor = os.open("/dev/infiniband/uverbs0", os.O_RDWR)
    os.listdir("/sys/class/infiniband/rxe0/ports/1/gids")
    os.close(descriptor)
"""
DEADLINE_SECONDS = 60


def of_group(group: int) -> list[int]:
    """The processes of a group that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] not in "ZX":
            found.append(int(entry.name))
    return found


def main() -> int:
    """Starts supervisors and kills them."""
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    print(f"seed {seed}, {count} supervisors")
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "softhca", "run", "--", sys.executable, "-c", PROGRAM]
        for number in range(count):
            supervisor = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "TMPDIR": directory},
                start_new_session=True,
            )
            assert supervisor.stdout is not None
            # A third of them before their program has begun.
            if chance.random() < 2 / 3:
                supervisor.stdout.readline()
            time.sleep(chance.random() * 0.3)
            supervisor.send_signal(signal.SIGKILL)
            supervisor.wait()
            supervisor.stdout.close()
            deadline = time.monotonic() + DEADLINE_SECONDS
            while left := of_group(supervisor.pid):
                if time.monotonic() > deadline:
                    print(f"{number}: processes {left} are left")
                    return 1
                time.sleep(0.01)
        # What one left that had no guardian yet, the next takes away.
        last = subprocess.run(
            [*command[:5], "true"], env={**os.environ, "TMPDIR": directory}, check=False
        )
        deadline = time.monotonic() + DEADLINE_SECONDS
        while (names := os.listdir(directory)) and time.monotonic() < deadline:
            time.sleep(0.01)
        if last.returncode or names:
            print(f"left: {names}")
            return 1
    print("nothing is left")
    return 0


if __name__ == "__main__":
    sys.exit(main())
