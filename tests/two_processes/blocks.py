"""The bytes of a lossy stream, the same in both processes: a function of seed and number."""

from __future__ import annotations

import functools
import random
import struct

BLOCK_BYTES = 1 << 20
DEPTH = 8
_DISTINCT = 8


@functools.cache
def block(seed: int, which: int) -> bytes:
    """One of a few random blocks of BLOCK_BYTES bytes."""
    return random.Random(f"{seed} {which}").randbytes(BLOCK_BYTES)


def message_bytes(number: int) -> int:
    """Length of a message: mostly full blocks, and now and then a length around a packet's."""
    return BLOCK_BYTES if number % 8 else 4096 * (number % 5) + number % 7 + 8


def expected(seed: int, number: int) -> bytes:
    """The content of a message: its number, then a random block."""
    body = block(seed, number % _DISTINCT)
    return struct.pack("<Q", number) + body[8 : message_bytes(number)]
