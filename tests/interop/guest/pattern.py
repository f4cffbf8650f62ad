"""Bytes that both sides can make for themselves, so that only digests have to travel."""

from __future__ import annotations

import hashlib


def pattern(seed: int, length: int) -> bytes:
    """`length` bytes that depend on `seed` throughout."""
    return hashlib.shake_128(seed.to_bytes(8, "big")).digest(length)


def digest(octets: bytes) -> str:
    """What stands for `octets` when they are compared."""
    return hashlib.sha256(octets).hexdigest()[:32]
