"""DLSlime's transfer engine (PyPI): writes to another endpoint of the device, and reads from it."""

from __future__ import annotations

import os
from typing import Any

from dlslime import RDMAEndpoint
from transfer_ends import SIZES, Memory, move


def open_endpoint(memory: Memory) -> tuple[Any, int]:
    """An endpoint of two queue pairs that has the memory registered, and the region's handle."""
    endpoint = RDMAEndpoint("rxe0", 1, "RoCE", 2)
    return endpoint, endpoint.register_memory_region("memory", memory.address, 0, max(SIZES))


def main() -> None:
    """Moves bytes, and compares them."""
    memory, there = Memory(), Memory()
    (near, here), (far, _) = open_endpoint(memory), open_endpoint(there)
    near.connect(far.endpoint_info())
    far.connect(near.endpoint_info())
    theirs = near.register_remote_memory_region("memory", far.endpoint_info()["mr_info"]["memory"])

    def write(size: int) -> None:
        assert near.write([(here, theirs, 0, 0, size)]).wait() == 0

    def read(size: int) -> None:
        assert near.read([(here, theirs, 0, 0, size)]).wait() == 0

    move(memory, write, read, lambda size: bytes(there.bytes[:size]))
    os._exit(0)


if __name__ == "__main__":
    main()
