"""A side of mpi4py: what the worker does under mpiexec."""

from __future__ import annotations

import time

from mpi4py import MPI

WINDOW = 64


class Side:
    """One of two ranks."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.world = MPI.COMM_WORLD
        self.windows: dict[int, MPI.Win] = {}

    def version(self) -> str:
        """Which MPI it is."""
        return str(MPI.Get_library_version()).split(",")[0].strip().splitlines()[0]

    def ping_pong(self, size: int, count: int) -> float:
        """Seconds of half a round trip."""
        out, back = bytearray(size), bytearray(size)
        send, receive = self.world.Send, self.world.Recv
        other = 1 - self.number
        start = time.perf_counter()
        for _ in range(count):
            if self.number == 0:
                send(out, other)
                receive(back, other)
            else:
                receive(back, other)
                send(out, other)
        return (time.perf_counter() - start) / count / 2

    def rate(self, size: int, count: int) -> float:
        """Messages a second, a window of them under way, and an answer for each window."""
        buffers = [bytearray(size) for _ in range(WINDOW)]
        answer = bytearray(1)
        world, wait_all = self.world, MPI.Request.Waitall
        start = time.perf_counter()
        for _ in range(count // WINDOW):
            if self.number == 0:
                isend = world.Isend
                wait_all([isend(buffer, 1) for buffer in buffers])
            else:
                irecv = world.Irecv
                wait_all([irecv(buffer, 0) for buffer in buffers])
        if self.number == 0:
            world.Recv(answer, 1)
        else:
            world.Send(answer, 0)
        return count // WINDOW * WINDOW / (time.perf_counter() - start)

    def stream(self, op: str, size: int, count: int) -> float:
        """Bytes a second of WRITEs (Put), READs (Get) or SENDs."""
        if op != "SEND":
            return self._one_sided(op, size, count)
        buffer = memoryview(bytearray(size))
        answer = bytearray(1)
        window = max(1, min(16, (16 << 20) // size))
        start = time.perf_counter()
        for _ in range(max(1, count // window)):
            if self.number == 0:
                MPI.Request.Waitall([self.world.Isend(buffer, 1) for _ in range(window)])
                self.world.Recv(answer, 1)
            else:
                MPI.Request.Waitall([self.world.Irecv(buffer, 0) for _ in range(window)])
                self.world.Send(answer, 0)
        return size * max(1, count // window) * window / (time.perf_counter() - start)

    def _one_sided(self, op: str, size: int, count: int) -> float:
        if size not in self.windows:
            self.windows[size] = MPI.Win.Allocate(size, comm=self.world)
        window = self.windows[size]
        buffer = memoryview(bytearray(size))
        rate = 0.0
        if self.number == 0:
            window.Lock(1)
            act = window.Put if op == "WRITE" else window.Get
            start = time.perf_counter()
            for _ in range(count):
                act(buffer, 1)
                window.Flush(1)
            rate = size * count / (time.perf_counter() - start)
            window.Unlock(1)
        self.world.Barrier()
        return rate

    def put_and_flush(self, count: int) -> float:
        """Seconds of a Put of 64 bytes into the rank's own window, and a flush."""
        if 64 not in self.windows:
            self.windows[64] = MPI.Win.Allocate(64, comm=MPI.COMM_SELF)
        window = self.windows[64]
        buffer = bytearray(64)
        window.Lock(0)
        put, flush = window.Put, window.Flush
        start = time.perf_counter()
        for _ in range(count):
            put(buffer, 0)
            flush(0)
        spent = (time.perf_counter() - start) / count
        window.Unlock(0)
        return spent

    def close(self) -> None:
        """Frees the windows, which MPI counts."""
        for window in self.windows.values():
            window.Free()
