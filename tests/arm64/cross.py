"""The extension and the native tests for arm64, and all that the guest is shown."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from tools import TOP, Tools

FOLDERS = ("src", "tests", "docs", "examples", "native", "bench")
FILES = ("pyproject.toml", "CMakeLists.txt", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")


def headers_of(root: Path, build: Path) -> Path:
    """Python's headers of the guest in one folder, as no path of this machine must be."""
    headers = build / "python3.11"
    shutil.rmtree(headers, ignore_errors=True)
    include = root / "usr" / "include"
    shutil.copytree(include / "python3.11", headers)
    # The one that comes with them goes by the path of the one for the processor.
    shutil.copy2(include / "aarch64-linux-gnu" / "python3.11" / "pyconfig.h", headers)
    return headers


def build(tools: Tools, root: Path, build: Path, share: Path) -> None:
    """Builds in `build`, and puts what is for the guest into `share`."""
    build.mkdir(parents=True, exist_ok=True)
    options = {
        "CMAKE_SYSTEM_NAME": "Linux",
        "CMAKE_SYSTEM_PROCESSOR": "aarch64",
        "CMAKE_CXX_COMPILER": tools.cxx,
        "CMAKE_AR": tools.ar,
        "CMAKE_RANLIB": tools.ranlib,
        "CMAKE_CXX_COMPILER_AR": tools.ar,
        "CMAKE_CXX_COMPILER_RANLIB": tools.ranlib,
        "CMAKE_BUILD_TYPE": "Release",
        "SOFTHCA_BUILD_TESTS": "ON",
        "SOFTHCA_WHOLE_PROGRAM": "OFF",
        "Python_EXECUTABLE": sys.executable,
        "Python_INCLUDE_DIR": headers_of(root, build),
    }
    defined = [f"-D{name}={value}" for name, value in options.items()]
    subprocess.run(["cmake", "-S", TOP, "-B", build, "-G", "Ninja", *defined], check=True)
    subprocess.run(["ninja", "-C", build], check=True)
    share.mkdir(parents=True)
    shutil.copy(build / "softhca_tests", share)
    (extension,) = build.glob("_adapter*.so")
    # In one file, which the guest reads in a second; a thousand files would take it a minute.
    with tarfile.open(share / "tree.tar", "w") as tar:
        for name in (*FOLDERS, *FILES):
            tar.add(TOP / name, f"tree/{name}", filter=unless_built)
        named = "_adapter.cpython-311-aarch64-linux-gnu.so"
        tar.add(extension, f"tree/src/softhca/{named}")
    captures = os.environ.get("SOFTHCA_PCAPS")
    if captures:
        shutil.copytree(captures, share / "pcaps")


def unless_built(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leaves out what belongs to this machine."""
    is_built = member.name.endswith((".so", "/__pycache__"))
    return None if is_built else member
