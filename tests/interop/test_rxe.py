"""The kernel's Soft-RoCE understands softhca, and the other way round; see `run` beside this file.

Skipped by name where the guest cannot be had, and where SOFTHCA_INTEROP is "off".
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def test_softhca_and_the_kernels_rxe_understand_each_other():
    if os.environ.get("SOFTHCA_INTEROP") == "off":
        pytest.skip("SOFTHCA_INTEROP is off")
    command = [sys.executable, Path(__file__).with_name("run")]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    last = done.stdout.strip().splitlines()[-1]
    if last.startswith("skipped:"):
        pytest.skip(last)
    assert done.returncode == 0, done.stdout
    assert last.endswith(" 0 failed")
