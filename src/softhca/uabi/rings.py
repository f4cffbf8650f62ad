"""The sizes of queues that programs map, as Linux's rxe has them.

A ring has a power of two of elements, of which one stays free. Programs are told how much they
really got; so limits are one less than a power of two.
"""

from __future__ import annotations

import errno
from typing import Any

from softhca._adapter import MappedRing, RingFile
from softhca.uabi.commands.call import refused

_SGE_BYTES = 16
_SEND_HEADER_BYTES = 208
_RECEIVE_HEADER_BYTES = 40
_COMPLETION_BYTES = 64


def most_of(limit: int) -> int:
    """The largest ring's size that a limit leaves room for."""
    return (1 << (limit + 1).bit_length() - 1) - 1


def demand_within(value: int, limit: int) -> int:
    """Refuses a size beyond a limit; EINVAL."""
    if value > limit:
        raise refused(errno.EINVAL, f"{value} is more than {limit}")
    return value


def completion_ring(file: RingFile, completions: int) -> MappedRing:
    """Room for completions."""
    return MappedRing(_COMPLETION_BYTES, completions + 1, file)


def send_ring(file: RingFile, requests: int, payload: int) -> MappedRing:
    """Room for send requests with entries or inline data of `payload` bytes each."""
    return MappedRing(_SEND_HEADER_BYTES + payload, max(requests, 1) + 1, file)


def send_payload(max_sge: int, max_inline: int) -> int:
    """Bytes that entries, or inline data, take in an element."""
    return max(max_sge * _SGE_BYTES, max_inline)


def receive_ring(file: RingFile, requests: int, max_sge: int) -> MappedRing:
    """Room for receives."""
    return MappedRing(_RECEIVE_HEADER_BYTES + max_sge * _SGE_BYTES, max(requests, 1) + 1, file)


def room_in(ring: MappedRing) -> int:
    """How many requests or completions fit."""
    return ring.elements - 1


def mapping_of(ring: MappedRing | None) -> dict[str, Any]:
    """Where a program finds a ring: struct mminfo."""
    return {"offset": ring.offset, "size": ring.size} if ring is not None else {}
