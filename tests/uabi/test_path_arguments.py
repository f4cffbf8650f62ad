"""Flags, modes and sizes of calls with a path."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .programs import SYSTEM_PYTHON, needs, run_under

ROUNDS = 3000
KERNELS = "/sys/devices/virtual/net/lo/type"


@needs(SYSTEM_PYTHON)
@pytest.mark.skipif(not os.path.exists(KERNELS), reason=f"not there: {KERNELS}")
def test_what_is_ours_answers_to_flags_as_what_is_the_kernels() -> None:
    program = str(Path(__file__).with_name("path_arguments.py"))
    assert run_under(SYSTEM_PYTHON, program, "1", str(ROUNDS)).stdout == "well\n"


@needs(SYSTEM_PYTHON)
def test_a_descriptor_is_asked_about_only_where_that_is_said() -> None:
    program = """
import ctypes, errno, os, stat
libc = ctypes.CDLL(None, use_errno=True)
device = os.open("/dev/infiniband/uverbs0", os.O_RDWR)
room = ctypes.create_string_buffer(512)
for flags in (0x1000, 0):
    got = libc.fstatat(device, b"", room, flags)
    print(got or "there", errno.errorcode.get(ctypes.get_errno()) if got else "")
"""
    done = run_under(SYSTEM_PYTHON, "-c", program).stdout
    assert done == "there \n-1 ENOENT\n"
