"""How many round trips a second do asyncio programs make: softhca, beside asyncio's own UDP?

    python bench/asyncio_round_trips.py [--round-trips 2000] [--rounds 9] [--tasks 1 64]

Two processes, 64 bytes. "write" awaits `qp.write()`, a round trip of request and acknowledgement
with a peer that does nothing; "echo" awaits `qp.send()` and `qp.recv()` on both sides; "udp" is a
datagram endpoint on each side. With several tasks, each makes round trips of its own. Prints
medians of interleaved rounds, and the ratio to UDP measured beside.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import time
from collections import deque
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from typing import Any

import softhca as hca

BYTES = 64
SLOTS = 256


class Side:
    """A device with a queue pair for each use."""

    def __init__(self) -> None:
        self.device = hca.open()
        self.pd = self.device.alloc_pd()
        self.mr = self.pd.reg_mr(bytearray(2 * SLOTS * BYTES))
        self.qps = [self._qp(), self._qp()]  # write, echo

    def _qp(self) -> hca.QP:
        cq = self.device.create_cq(4 * SLOTS)
        return self.pd.create_qp(
            hca.QPType.RC, send_cq=cq, recv_cq=cq, max_send_wr=SLOTS, max_recv_wr=SLOTS
        )

    def slot(self, n: int) -> hca.Sge:
        return self.mr[n * BYTES : (n + 1) * BYTES]


class Echo(asyncio.DatagramProtocol):
    """Sends back what comes."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        self.transport.sendto(data, address)


async def serve(pipe: Connection) -> None:
    side = Side()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Echo, local_addr=("127.0.0.1", 0))
    address = transport.get_extra_info("sockname")
    pipe.send(([qp.info() for qp in side.qps], side.mr.remote(), address))
    for qp, info in zip(side.qps, pipe.recv(), strict=True):
        qp.connect(info)
    echo = side.qps[1]

    async def answer(n: int) -> None:
        coming = echo.recv(side.slot(n))
        while True:
            await coming
            coming = echo.recv(side.slot(n))
            await echo.send(side.slot(SLOTS + n))

    answers = [asyncio.ensure_future(answer(n)) for n in range(SLOTS // 2)]
    await asyncio.sleep(0)
    pipe.send("ready")
    await loop.run_in_executor(None, pipe.recv)
    for task in answers:
        task.cancel()
    side.device.__exit__(None, None, None)
    transport.close()


class Client(asyncio.DatagramProtocol):
    """Answers go to those who asked, in order."""

    def __init__(self) -> None:
        self.asked: deque[asyncio.Future[bytes]] = deque()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        self.asked.popleft().set_result(data)

    async def ask(self, n: int) -> None:
        answer = asyncio.get_running_loop().create_future()
        self.asked.append(answer)
        self.transport.sendto(b"x" * BYTES)
        await answer


async def rate(ask: Callable[[int], Awaitable[object]], tasks: int, round_trips: int) -> float:
    async def one(n: int) -> None:
        for _ in range(round_trips // tasks):
            await ask(n)

    start = time.perf_counter()
    await asyncio.gather(*(one(n) for n in range(tasks)))
    return round_trips // tasks * tasks / (time.perf_counter() - start)


async def measure(pipe: Connection, options: argparse.Namespace) -> None:
    side = Side()
    infos, remote, address = pipe.recv()
    for qp, info in zip(side.qps, infos, strict=True):
        qp.connect(info)
    pipe.send([qp.info() for qp in side.qps])
    pipe.recv()
    loop = asyncio.get_running_loop()
    transport, client = await loop.create_datagram_endpoint(Client, remote_addr=address)
    writer, echo = side.qps

    async def write(n: int) -> None:
        (await writer.write(side.slot(n), remote[n * BYTES : (n + 1) * BYTES])).raise_for_status()

    async def send_and_hear(n: int) -> None:
        answer = echo.recv(side.slot(n))
        await echo.send(side.slot(SLOTS + n))
        (await answer).raise_for_status()

    ways = {"udp": client.ask, "write": write, "echo": send_and_hear}
    print(f"{'tasks':>5} {'':6} {'a second':>9} {'x udp':>6}")
    for tasks in options.tasks:
        measured: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(options.rounds):
            for name, way in ways.items():
                measured[name].append(await rate(way, tasks, options.round_trips))
        for name, rates in measured.items():
            ratio = statistics.median(a / b for a, b in zip(rates, measured["udp"], strict=True))
            print(f"{tasks:5} {name:6} {statistics.median(rates):9.0f} {ratio:6.2f}")
    transport.close()
    side.device.__exit__(None, None, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--round-trips", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tasks", type=int, nargs="+", default=[1, 64])
    options = parser.parse_args()
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    server = context.Process(target=run_server, args=(there,))
    server.start()
    asyncio.run(measure(here, options))
    here.send("done")
    server.join()


def run_server(pipe: Connection) -> None:
    asyncio.run(serve(pipe))


if __name__ == "__main__":
    main()
