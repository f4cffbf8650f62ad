"""Sides of what Python brings along: pipes, shared memory, sockets, asyncio.

Each speaks through one small object with `exchange`-able messages of a fixed size; the sides are
connected through a folder that both know.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from multiprocessing import resource_tracker, shared_memory
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

from bench.peers.ping_pong import ping_pong


class Side:
    """One of two processes.

    Args:
        number: 0 measures, and connects.
        folder: Where to find each other.
        kind: pipe, memory, tcp, udp or asyncio.
    """

    def __init__(self, number: int, folder: str, kind: str) -> None:
        self.number = number
        self.folder = Path(folder)
        self.kind = kind
        self.socket: socket.socket | None = None
        self.pipe: Connection[Any, Any] | None = None
        self.memory: shared_memory.SharedMemory | None = None
        self.listener: Listener | None = None

    def offer(self) -> object:
        """Side 1 makes what side 0 connects to, and says its address."""
        if self.kind == "pipe":
            self.listener = Listener(str(self.folder / "pipe"), "AF_UNIX")
            return self.listener.address
        if self.kind == "memory":
            self.memory = shared_memory.SharedMemory(create=True, size=4096)
            return self.memory.name
        kind = socket.SOCK_DGRAM if self.kind == "udp" else socket.SOCK_STREAM
        self.socket = socket.socket(socket.AF_INET, kind)
        self.socket.bind(("127.0.0.1", 0))
        if kind is socket.SOCK_STREAM:
            self.socket.listen()
        return self.socket.getsockname()

    def meet(self, address: Any) -> None:
        """Both connect; for side 1 the address is None."""
        getattr(self, f"_meet_{self.kind}")(address)

    def _meet_pipe(self, address: Any) -> None:
        if address is None:
            assert self.listener is not None
            self.pipe = self.listener.accept()
        else:
            self.pipe = Client(address, "AF_UNIX")

    def _meet_memory(self, address: Any) -> None:
        if address is not None:
            self.memory = shared_memory.SharedMemory(address)
            # Who made it takes it away; the tracker would do so a second time.
            resource_tracker.unregister(f"/{address}", "shared_memory")

    def _meet_tcp(self, address: Any) -> None:
        if address is None:
            assert self.socket is not None
            listening, self.socket = self.socket, self.socket.accept()[0]
            listening.close()
        else:
            self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)

    _meet_asyncio = _meet_tcp

    def _meet_udp(self, address: Any) -> None:
        if address is not None:
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.socket.connect(address)
            self.socket.send(b"hello")
        else:
            assert self.socket is not None
            self.socket.connect(self.socket.recvfrom(16)[1])
        self.socket.setblocking(False)

    def ping_pong(self, size: int, count: int) -> float:
        """Seconds of half a round trip."""
        if self.kind == "asyncio":
            return asyncio.run(self._asyncio_ping_pong(size, count))
        if self.kind == "memory":
            return self._memory_ping_pong(size, count)
        send, receive = self._calls(size)
        return ping_pong(self.number, send, receive, size, count)

    def _calls(self, size: int) -> tuple[Callable[[bytes], object], Callable[[], object]]:
        if self.pipe is not None:
            return self.pipe.send_bytes, self.pipe.recv_bytes
        assert self.socket is not None
        take = self.socket.recv

        def spin() -> object:
            left = size
            while left > 0:
                try:  # noqa: SIM105 -- suppress() costs more than what is measured.
                    left -= len(take(left))
                except BlockingIOError:
                    pass
            return None

        return self.socket.send, spin

    def _memory_ping_pong(self, size: int, count: int) -> float:
        """A byte announces each message; the bytes of a message lie behind it."""
        assert self.memory is not None
        view = self.memory.buf
        assert view is not None
        message = bytes(size)
        ours, theirs = (0, 2048) if self.number == 0 else (2048, 0)
        view[ours] = 0
        if self.number == 0:
            # Side 1 is told first, and has cleared its own.
            time.sleep(0.01)
        first, last = ours + 64, ours + 64 + size
        near, far = theirs + 64, theirs + 64 + size
        start = time.perf_counter()
        for turn in range(count):
            mark = turn % 255 + 1
            if self.number == 0:
                view[first:last] = message
                view[ours] = mark
                while view[theirs] != mark:
                    pass
                bytes(view[near:far])
            else:
                while view[theirs] != mark:
                    pass
                bytes(view[near:far])
                view[first:last] = message
                view[ours] = mark
        return (time.perf_counter() - start) / count / 2

    async def _asyncio_ping_pong(self, size: int, count: int) -> float:
        assert self.socket is not None
        reader, writer = await asyncio.open_connection(sock=self.socket.dup())
        message = bytes(size)
        start = time.perf_counter()
        for _ in range(count):
            if self.number == 0:
                writer.write(message)
                await reader.readexactly(size)
            else:
                await reader.readexactly(size)
                writer.write(message)
        await writer.drain()
        spent = (time.perf_counter() - start) / count / 2
        writer.close()
        return spent

    def stream(self, size: int, count: int) -> float:
        """Bytes a second over a socket that sleeps where it must."""
        assert self.socket is not None
        self.socket.setblocking(True)
        buffer = bytearray(size)
        start = time.perf_counter()
        if self.number == 0:
            for _ in range(count):
                self.socket.sendall(buffer)
            self.socket.recv(1)
        else:
            view, left = memoryview(buffer), size * count
            while left:
                left -= self.socket.recv_into(view[: min(size, left)])
            self.socket.sendall(b"x")
        spent = time.perf_counter() - start
        self.socket.setblocking(False)
        return size * count / spent

    def close(self) -> None:
        """Leaves nothing behind."""
        if self.memory is not None:
            self.memory.close()
            if self.number == 1:
                self.memory.unlink()
