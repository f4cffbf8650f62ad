"""The fast path is a load of the generation and nothing else, and registering one call of ioctl.

Held by the kernel itself: a filter (seccomp) kills the process at any other system call.
"""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

WRITE, IOCTL, EXIT_GROUP = (64, 29, 94) if platform.machine() == "aarch64" else (1, 16, 231)

PROGRAM = """
import ctypes, gc, os, struct, sys
import softhca as hca
from softhca.testing import open_simulated

def allow_only(*numbers):
    code = [(0x20, 0, 0, 0)]
    for left, number in zip(range(len(numbers), 0, -1), numbers):
        code.append((0x15, left, 0, number))
    code += [(0x06, 0, 0, 0x80000000), (0x06, 0, 0, 0x7FFF0000)]
    program = b"".join(struct.pack("HBBI", *line) for line in code)
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("H6xP", len(code), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, header, 0, 0) == 0

what, *numbers = sys.argv[1:]
device = open_simulated("10.0.0.1", seed=1)
pd = device.alloc_pd()
cache = hca.RegistrationCache(pd)
channel = device.create_invalidation_channel()
buffer = bytearray(1 << 16)
part = memoryview(buffer)[100:200]

def work(rounds):
    seen = channel.generation
    for _ in range(rounds):
        if what == "hit":
            cache.put(cache.get(buffer))
            with cache.registered(part):
                pass
            assert channel.page[0] == channel.generation == seen
        elif what == "register":
            pd.reg_mr(buffer, invalidation=channel).dereg()
        else:
            os.stat("/")

gc.disable()
work(300)
allow_only(*map(int, numbers))
work(5000)
os.write(1, b"done")
os._exit(0)
"""


def outcome(what: str, *allowed: int) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, what, *map(str, allowed)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout


def test_a_hit_makes_no_system_call() -> None:
    assert outcome("hit", WRITE, EXIT_GROUP) == (0, "done")


def test_registering_with_notices_calls_nothing_but_ioctl() -> None:
    assert outcome("register", WRITE, EXIT_GROUP, IOCTL) == (0, "done")


@pytest.mark.parametrize(("what", "allowed"), [("register", [WRITE]), ("else", [WRITE, IOCTL])])
def test_the_filter_would_tell(what: str, allowed: list[int]) -> None:
    status, said = outcome(what, *allowed)
    assert status < 0
    assert said == ""
