"""What programs of transfer engines have in common: an owner of memory in a process of its own."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import multiprocessing
import os
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

SIZES = (8, 4096, 1 << 20)
# Makes an engine that has the memory registered, and says what others must know of it.
OpenEngine = Callable[["Memory"], tuple[Any, Any]]


class Memory:
    """A mebibyte of the process's own, for a library to register."""

    def __init__(self) -> None:
        self.bytes = mmap.mmap(-1, max(SIZES), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.bytes))


def _own(open_engine: OpenEngine, pipe: Connection) -> None:
    memory = Memory()
    engine, name = open_engine(memory)
    pipe.send((name, memory.address))
    while (length := pipe.recv()) is not None:
        pipe.send(bytes(memory.bytes[:length]))
    del engine


@contextlib.contextmanager
def owner(open_engine: OpenEngine) -> Iterator[tuple[Any, int, Callable[[int], bytes]]]:
    """Another process's engine: what is known of it, its memory's address, and a look at that."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_own, args=(open_engine, there))
    process.start()

    def look(length: int) -> bytes:
        here.send(length)
        return bytes(here.recv())

    name, address = here.recv()
    yield name, address, look
    here.send(None)
    process.join()


def move(
    memory: Memory,
    write: Callable[[int], None],
    read: Callable[[int], None],
    look: Callable[[int], bytes],
) -> None:
    """Writes and reads each size, and compares what arrived."""
    for number, size in enumerate(SIZES, 1):
        sent = os.urandom(size)
        memory.bytes[:size] = sent
        write(size)
        assert look(size) == sent, f"a write of {size} bytes"
        memory.bytes[:size] = bytes([number]) * size
        read(size)
        assert memory.bytes[:size] == sent, f"a read of {size} bytes"
    print("bytes are right", flush=True)
