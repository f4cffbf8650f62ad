"""What the machine must have to build for arm64 and to run it."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
CACHE = Path(
    os.environ.get("SOFTHCA_ARM64_CACHE", Path.home() / ".cache" / "softhca-arm64")
).absolute()
# Debian 12, which the guest runs.
GUEST_PYTHON = (3, 11)
# The command, and Debian's package of it.
PROGRAMS = {
    "qemu-system-aarch64": "qemu-system-arm",
    "mkfs.ext4": "e2fsprogs",
    "modprobe": "kmod",
    "depmod": "kmod",
    "dpkg-deb": "dpkg",
    "apt-get": "apt",
    "cpio": "cpio",
    "cmake": "cmake",
    "ninja": "ninja-build",
}


@dataclass(frozen=True)
class Tools:
    """Of building."""

    cxx: str
    ar: str
    ranlib: str


def skip(why: str) -> None:
    print(f"skipped: {why}")
    sys.exit(0)


def find_tools() -> Tools:
    """The cross compiler; ends the program where anything is missing."""
    os.environ["PATH"] += os.pathsep + "/usr/sbin:/sbin"
    for program, package in PROGRAMS.items():
        if shutil.which(program) is None:
            skip(f"{program} is not installed (Debian: {package})")
    if sys.version_info[:2] != GUEST_PYTHON:
        skip("the guest's extension is built with Python 3.11, which this is not")
    for module in ("nanobind", "pip"):
        try:
            __import__(module)
        except ImportError:
            skip(f"this Python has no {module}")
    named = os.environ.get("SOFTHCA_ARM64_CXX", "aarch64-linux-gnu-g++")
    cxx = shutil.which(named)
    if cxx is None:
        skip(f"{named} is not installed (Debian: g++-aarch64-linux-gnu; SOFTHCA_ARM64_CXX)")
        raise AssertionError
    beside = [cxx.replace("g++", f"gcc-{tool}") for tool in ("ar", "ranlib")]
    for tool in beside:
        if not Path(tool).exists():
            skip(f"{tool}, which belongs to {cxx}, does not exist")
    return Tools(cxx, *beside)
