"""What calls with a path say to their other arguments, as the kernel says it to paths of its own.

`path_arguments.py SEED ROUNDS`: under `softhca run`. Each round makes a call of our path and of one
of the same kind, and prints where they differ; `well` at the end.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import random
import struct
import sys
from collections.abc import Callable

PAIRS = (
    (b"/sys/class/infiniband", b"/sys/devices/virtual/net"),
    (b"/sys/class/infiniband/rxe0/fw_ver", b"/sys/devices/virtual/net/lo/type"),
    (b"/sys/class/infiniband/none", b"/sys/devices/virtual/net/none"),
    (b"/sys/class/infiniband/none/fw_ver", b"/sys/devices/virtual/net/none/type"),
    (b"/sys/class/infiniband/rxe0/fw_ver/none", b"/sys/devices/virtual/net/lo/type/none"),
    (b"/dev/infiniband/uverbs0", b"/dev/null"),
    (b"/dev/infiniband/uverbs0/none", b"/dev/null/none"),
)
AT_FDCWD = -100
STATX, OPENAT2, FACCESSAT2 = 332, 437, 439
NEWFSTATAT, OPENAT, FACCESSAT = 262, 257, 269
if platform.machine() == "aarch64":
    STATX, NEWFSTATAT, OPENAT, FACCESSAT = 291, 79, 56, 48
AT_FLAGS = (0x100, 0x200, 0x400, 0x800, 0x1000, 0x2000, 0x4000, 0x8000, 1 << 31)
# O_TMPFILE is not among them: what it makes depends on the file system.
OPEN_FLAGS = (os.O_CREAT, os.O_EXCL, os.O_APPEND, os.O_NONBLOCK, os.O_DIRECTORY, os.O_NOFOLLOW)
OPEN_FLAGS += (os.O_CLOEXEC, os.O_PATH, os.O_SYNC, os.O_NOCTTY)
UNKNOWN_FLAGS = (1 << 27, 1 << 40)
# Nor RESOLVE_CACHED: it depends on what the kernel has just seen.
LOOKUPS = (1, 2, 4, 8, 16, 64, 1 << 33)

libc = ctypes.CDLL(None, use_errno=True)
room = ctypes.create_string_buffer(4096)
words = ctypes.create_string_buffer(8192)


def call(number: int, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> str:
    """Makes a call; its errno by name, or what is right."""
    full = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    got = libc.syscall(ctypes.c_long(number), *full)
    if got < 0:
        return errno.errorcode[ctypes.get_errno()]
    if number in (OPENAT, OPENAT2):
        os.close(got)
        return "a descriptor"
    return str(got)


# Linux 6.4 and later refuse to make a directory so.
MAKES_A_DIRECTORY = os.O_CREAT | os.O_DIRECTORY
REFUSES_IT = call(OPENAT, AT_FDCWD, b"/dev/null", MAKES_A_DIRECTORY, 0) == "EINVAL"


def some(draw: random.Random, flags: tuple[int, ...], most: int) -> int:
    """A few of the flags."""
    chosen = 0
    for flag in draw.sample(flags, draw.randint(0, most)):
        chosen |= flag
    return chosen


def opening(draw: random.Random) -> Callable[[bytes], str]:
    """open(2) in its newest forms."""
    flags = draw.choice((os.O_RDONLY, os.O_WRONLY, os.O_RDWR)) | some(draw, OPEN_FLAGS, 3)
    if flags & MAKES_A_DIRECTORY == MAKES_A_DIRECTORY and not REFUSES_IT:
        flags &= ~os.O_DIRECTORY
    if draw.random() < 0.5:
        return lambda path: call(OPENAT, AT_FDCWD, path, flags, 0)
    flags |= some(draw, UNKNOWN_FLAGS, 1) if draw.random() < 0.2 else 0
    makes = flags & os.O_CREAT
    mode = draw.choice((0, 0o600)) if makes else draw.choice((0, 0, 0, 0, 1))
    lookup = some(draw, LOOKUPS, 2) if draw.random() < 0.5 else 0
    size = draw.choice((24, 24, 24, 24, 24, 0, 8, 23, 25, 32, 4096, 4097))
    tail = bytes(size) if draw.random() < 0.7 else bytes(7) + b"\1" + bytes(size)
    words.raw = (struct.pack("<QQQ", flags, mode, lookup) + tail)[: len(words)].ljust(len(words))
    where = words if draw.random() < 0.95 else None
    return lambda path: call(OPENAT2, AT_FDCWD, path, where, size)


def asking(draw: random.Random) -> Callable[[bytes], str]:
    """stat(2) and access(2) in their newest forms."""
    flags, more = some(draw, AT_FLAGS, 2), draw.choice((0, 0x7FF, 0xFFF, 1 << 31))
    number = draw.choice((STATX, NEWFSTATAT, FACCESSAT, FACCESSAT2))
    if number == STATX:
        return lambda path: call(STATX, AT_FDCWD, path, flags, more, room)
    if number == NEWFSTATAT:
        return lambda path: call(NEWFSTATAT, AT_FDCWD, path, room, flags)
    # The privileged may write what is for reading.
    mode = draw.choice((0, os.R_OK, os.R_OK, os.X_OK, 8, 1 << 30))
    return lambda path: call(number, AT_FDCWD, path, mode, flags)


def main() -> None:
    """Makes the calls."""
    seed, rounds = map(int, sys.argv[1:])
    draw = random.Random(seed)
    for turn in range(rounds):
        ours, kernels = draw.choice(PAIRS)
        asked = draw.choice((opening, asking))(draw)
        said, expected = asked(ours), asked(kernels)
        if said != expected:
            print(f"seed {seed} turn {turn}: {ours!r} {said}, not {expected}")
    print("well")


if __name__ == "__main__":
    main()
