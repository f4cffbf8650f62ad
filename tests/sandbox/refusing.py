#!/usr/bin/env python3
"""Runs a program in a sandbox that refuses system calls: `refusing.py CALL=ERRNO... -- PROGRAM...`.

`CALL:FIRST=ERRNO` refuses only those whose first argument is that number. It refuses as the
profiles of container runtimes do, by a filter of seccomp(2). Exits with 77 where that cannot be
arranged.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

PR_SET_NO_NEW_PRIVS = 38
PR_SET_SECCOMP = 22
SECCOMP_MODE_FILTER = 2
SECCOMP_RET_ALLOW = 0x7FFF0000
SECCOMP_RET_ERRNO = 0x00050000
UNAVAILABLE = 77

# Numbers of x86-64. What was added since Linux 5.0 has the same one everywhere.
CALLS = {
    "clone": 56,
    "clone3": 435,
    "pidfd_getfd": 438,
    "pidfd_open": 434,
    "close_range": 436,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "socket": 41,
}
# Of struct seccomp_data: the number of the call, and the low half of its first argument.
CALL_OFFSET = 0
FIRST_OFFSET = 16


class Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def load(offset: int) -> bytes:
    return struct.pack("HBBI", 0x20, 0, 0, offset)


def skip_unless_equal(value: int, skipped: int) -> bytes:
    return struct.pack("HBBI", 0x15, 0, skipped, value)


def answer(value: int) -> bytes:
    return struct.pack("HBBI", 0x06, 0, 0, value)


def instructions_for(rule: str) -> list[bytes]:
    words, _, error = rule.partition("=")
    call, _, first = words.partition(":")
    instructions = [answer(SECCOMP_RET_ERRNO | getattr(errno, error))]
    if first:
        instructions[:0] = [load(FIRST_OFFSET), skip_unless_equal(int(first), 1)]
    return [load(CALL_OFFSET), skip_unless_equal(CALLS[call], len(instructions)), *instructions]


def refuse(rules: list[str]) -> None:
    """Refuses calls to this process, and to all that it starts."""
    if platform.machine() != "x86_64":
        print(f"the numbers of system calls on {platform.machine()} are not known")
        sys.exit(UNAVAILABLE)
    instructions = [instruction for rule in rules for instruction in instructions_for(rule)]
    instructions.append(answer(SECCOMP_RET_ALLOW))
    program = Program(len(instructions), b"".join(instructions))
    libc = ctypes.CDLL(None, use_errno=True)
    if (
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
        or libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program)) != 0
    ):
        print(os.strerror(ctypes.get_errno()))
        sys.exit(UNAVAILABLE)


def main() -> None:
    words = sys.argv[1:]
    split = words.index("--")
    refuse(words[:split])
    os.execvp(words[split + 1], words[split + 1 :])


if __name__ == "__main__":
    main()
