"""What `--refusals` prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from .programs import SYSTEM_PYTHON, needs, run_under

PROGRAM = """
import fcntl, os, struct

def refused(call, *arguments):
    try:
        call(*arguments)
    except OSError:
        return
    raise AssertionError(arguments)

device = os.open("/dev/infiniband/uverbs0", os.O_RDWR)
refused(os.write, device, bytes(4))
refused(os.write, device, struct.pack("<IHH", 3, 2, 2))
refused(os.write, device, struct.pack("<IHHQQ", 3, 6, 4, 0, 0))
refused(os.write, device, struct.pack("<IHH", 200, 2, 2))
for number, method in ((0x7777, 5), (5, 0)):
    asked = struct.pack("<HHHHQII", 24, number, method, 0, 0, 14, 0)
    refused(fcntl.ioctl, device, 0xC0181B01, bytearray(asked))
"""


def printed(*command: str, options: tuple[str, ...] = ()) -> list[str]:
    """What is said of each refusal, without the task."""
    lines = run_under(*command, options=("--refusals", *options)).stderr.splitlines()
    found = [re.fullmatch(r"softhca run: task \d+: (.*)", line) for line in lines]
    assert all(found), lines
    return [one.group(1) for one in found if one is not None]


def test_the_command_is_named_and_what_is_wrong_with_it() -> None:
    assert printed(SYSTEM_PYTHON, "-c", PROGRAM) == [
        "[Errno 22] write: 4 bytes are no header",
        "[Errno 28] alloc_pd: a request of 0 bytes, not 8",
        "[Errno 22] alloc_pd: the program has not asked for its context yet",
        "[Errno 95] command 0xc8: there is no such command",
        "[Errno 93] ioctl: there is no method 5 of object 30583",
        "[Errno 22] create_srq_by_attributes: attribute 0 (srq_handle) is missing",
    ]


@needs("ibv_devinfo")
@pytest.mark.parametrize("options", [(), ("--write-abi",)])
def test_questions_are_no_refusals(options: tuple[str, ...]) -> None:
    """Which entries of a table are empty, and how commands can be given."""
    assert printed("ibv_devinfo", "-v", options=options) == []


def test_that_nobody_reads_what_is_refused_is_not_the_programs_end() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "softhca", "run", "--refusals", "--"]
    try:
        program = f"{PROGRAM}\nprint('alive')\nraise SystemExit(3)"
        words = [*command, SYSTEM_PYTHON, "-c", program]
        done = subprocess.run(
            words, stdout=subprocess.PIPE, stderr=writer, timeout=120, check=False
        )
    finally:
        os.close(writer)
    assert (done.stdout, done.returncode) == (b"alive\n", 3)
