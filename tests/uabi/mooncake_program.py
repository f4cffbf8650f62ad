"""Mooncake's transfer engine (PyPI) over RDMA: writes to another process, and reads from it."""

from __future__ import annotations

import os
from typing import Any

from mooncake.engine import TransferEngine
from transfer_ends import SIZES, Memory, move, owner


def open_engine(memory: Memory) -> tuple[Any, str]:
    """An engine that has the memory registered, and what others call it."""
    engine = TransferEngine()
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", "") == 0
    assert engine.register_memory(memory.address, max(SIZES)) == 0
    return engine, f"127.0.0.1:{engine.get_rpc_port()}"


def main() -> None:
    """Moves bytes, and compares them."""
    memory = Memory()
    engine, _ = open_engine(memory)
    with owner(open_engine) as (name, there, look):
        here = memory.address

        def write(size: int) -> None:
            assert engine.transfer_sync_write(name, here, there, size) == 0

        def read(size: int) -> None:
            assert engine.transfer_sync_read(name, here, there, size) == 0

        move(memory, write, read, look)
    os._exit(0)


if __name__ == "__main__":
    main()
