"""The kernel's Soft-RoCE understands softhca, and the other way round; see `run` beside this file.

Skipped by name where the guest cannot be had, and where SOFTHCA_INTEROP is "off".
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest


def _end_with_parent() -> None:
    """The guest goes with the test, however that is ended."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def test_softhca_and_the_kernels_rxe_understand_each_other():
    if os.environ.get("SOFTHCA_INTEROP") == "off":
        pytest.skip("SOFTHCA_INTEROP is off")
    command = [sys.executable, Path(__file__).with_name("run")]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=_end_with_parent,
    )
    last = done.stdout.strip().splitlines()[-1]
    if last.startswith("skipped:"):
        pytest.skip(last)
    assert done.returncode == 0, done.stdout
    assert last.endswith(" 0 failed")
