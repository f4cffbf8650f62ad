"""Bytes that differ from message to message, and that both ends can make for themselves."""

from __future__ import annotations

import random

# Prime, so that messages of any length repeat late.
_VARIANTS = 251


class Payload:
    """Messages of one length: number n is `payload[n]`; its last byte is never 0 or number n-1's.

    Neighbours differ in nearly every byte: each is a window of random bytes, moved on by one.
    """

    def __init__(self, length: int, seed: int) -> None:
        self._length = length
        self._bytes = random.Random(seed).randbytes(length + _VARIANTS)

    def __getitem__(self, number: int) -> bytes:
        if not self._length:
            return b""
        start = number % _VARIANTS
        body = self._bytes[start : start + self._length - 1]
        return body + bytes([self.mark(number)])

    @staticmethod
    def mark(number: int) -> int:
        """The last byte of message `number`: what tells whoever watches memory that it is there."""
        return number % 255 + 1
