"""Where and on what something was measured."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path

from bench.build import TOP
from bench.processors import two_processors


def _processor() -> str:
    found = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    return found.group(1) if found else platform.processor()


def _virtual() -> str:
    flags = Path("/proc/cpuinfo").read_text()
    return ", in a virtual machine" if " hypervisor" in flags else ""


def _memory() -> str:
    found = re.search(r"MemTotal:\s*(\d+) kB", Path("/proc/meminfo").read_text())
    return f"{int(found.group(1)) / 2**20:.0f} GiB" if found else "?"


def commit() -> str:
    """The commit, and whether what is measured is more than that; empty outside of Git."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=TOP, capture_output=True, text=True)
        return done.stdout.strip()

    changed = " with changes" if git("status", "--porcelain", "--untracked-files=no") else ""
    return git("rev-parse", "--short=12", "HEAD") + changed


def machine() -> dict[str, str]:
    """What a reader wants to know, in the order of interest."""
    processors = " and ".join(map(str, two_processors()))
    compiler = subprocess.run(["gcc", "-dumpfullversion"], capture_output=True, text=True)
    return {
        "processor": f"{_processor()}, {os.cpu_count()} of them{_virtual()}",
        "the two sides run on": f"processors {processors}",
        "memory": _memory(),
        "kernel": platform.release(),
        "Python": platform.python_version(),
        "gcc": compiler.stdout.strip(),
        "commit": commit(),
    }
