"""A message there and back, with whatever sends and receives."""

from __future__ import annotations

import time
from collections.abc import Callable


def ping_pong(
    number: int,
    send: Callable[[bytes], object],
    receive: Callable[[], object],
    size: int,
    count: int,
) -> float:
    """Seconds of half a round trip; side 0 begins."""
    message = bytes(size)
    start = time.perf_counter()
    for _ in range(count):
        if number == 0:
            send(message)
            receive()
        else:
            receive()
            send(message)
    return (time.perf_counter() - start) / count / 2
