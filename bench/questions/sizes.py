"""How do latency and bandwidth go with the size of a message? This is what the plots show."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial

from bench.contest import Contest
from bench.contestants import Contestants
from bench.findings import GIGABYTES, MICROSECONDS, Better, Finding, Goal
from bench.peers import libfabric, mpi, ucx, zmq
from bench.peers.python import PythonSides
from bench.probes import probe
from bench.softhca_sides import SofthcaSides
from bench.turns import Measure

TITLE = "latency and bandwidth over message size"

LATENCY_SIZES = (8, 64, 512, 4096, 32768)
BANDWIDTH_SIZES = (4096, 65536, 1 << 20, 16 << 20)
TURNS = 400
BYTES = 64 << 20
# What a packet carries with a path MTU of 4096.
PAYLOAD = 4096
POINT_SECONDS = 5.0

AddPeers = Callable[[Contestants, int], None]


def window(size: int) -> int:
    """Messages under way."""
    return max(2, min(32, (4 << 20) // size))


def stream_count(size: int) -> int:
    """Messages of a reading."""
    return max(BYTES // size, 4)


def point(
    contest: Contest, picture: str, size: int, limit: tuple[str, Measure], among: Contestants
) -> Finding:
    """A point of each curve of a picture."""
    is_latency = picture.startswith("latency")
    goal = Goal(Better.LESS if is_latency else Better.MORE)
    unit = MICROSECONDS if is_latency else GIGABYTES
    what = f"{picture}, {size_name(size)}"
    return contest.compare(what, goal, limit, unit, among, size=size, picture=picture)


def size_name(size: int) -> str:
    """Bytes as people say them."""
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size // scale} {unit}"
    return f"{size} B"


def latencies(
    contest: Contest, sides: SofthcaSides, picture: str, letter: str, add_peers: AddPeers
) -> Iterator[Finding]:
    """A point for each size, with the peers that `add_peers` adds."""
    for size in LATENCY_SIZES:
        key = f"latency {size}"
        sides.connect(key, size)
        with Contestants(contest.peers) as among:
            among.ours("softhca", partial(sides.ping_pong, key, TURNS))
            add_peers(among, size)
            yield point(contest, picture, size, probe(letter, size), among)


def bandwidths(
    contest: Contest, sides: SofthcaSides, picture: str, letter: str, add_peers: AddPeers
) -> Iterator[Finding]:
    """The same for bytes; probe s carries the payload of packets, whatever the message."""
    for size in BANDWIDTH_SIZES:
        key = f"WRITE {size}"
        sides.connect(key, size)
        stream = partial(sides.stream, key, "WRITE", stream_count(size), window(size))
        with Contestants(contest.peers) as among:
            among.ours("softhca, WRITE", stream)
            add_peers(among, size)
            limit = probe(letter, PAYLOAD if letter == "s" else size)
            yield point(contest, picture, size, limit, among)


def add_to_shared_latency(among: Contestants, size: int) -> None:
    """Those that exchange messages within a host."""
    among.sides("mpi4py, Open MPI", partial(mpi.sides, "Open MPI"), "ping_pong", size, TURNS)
    among.sides("Pipe", partial(PythonSides, "pipe"), "ping_pong", size, TURNS)
    among.sides("pyzmq, ipc", partial(zmq.sides, "ipc"), "ping_pong", size, TURNS)
    among.peer("UCX, in C", partial(ucx.measure_latency, "SHARED_MEMORY", size))


def add_to_shared_bandwidth(among: Contestants, size: int) -> None:
    """Those that write into each other's memory."""
    start, count = partial(mpi.sides, "Open MPI"), stream_count(size)
    among.sides("mpi4py Put, Open MPI", start, "stream", "WRITE", size, count)
    among.peer("UCX put, in C", partial(ucx.measure_bandwidth, "SHARED_MEMORY", "WRITE", size))


def add_to_udp_latency(among: Contestants, size: int) -> None:
    """Those that exchange messages over networks."""
    among.sides("Python TCP", partial(PythonSides, "tcp"), "ping_pong", size, TURNS)
    among.sides("pyzmq, tcp", partial(zmq.sides, "tcp"), "ping_pong", size, TURNS)
    among.peer("libfabric tcp, in C", partial(libfabric.measure_latency, "TCP", size))


def add_to_udp_bandwidth(among: Contestants, size: int) -> None:
    """Those that send bytes over networks."""
    among.sides("Python TCP", partial(PythonSides, "tcp"), "stream", size, stream_count(size))
    among.peer("UCX tcp, in C", partial(ucx.measure_bandwidth, "TCP", "SEND", size))


def ask(contest: Contest) -> Iterator[Finding]:
    """Compares with the probes that the other questions use."""
    # Eighteen points, and a curve needs no more of each than its place.
    contest = dataclasses.replace(contest, seconds=min(contest.seconds, POINT_SECONDS))
    with SofthcaSides() as sides:
        yield from latencies(contest, sides, "latency", "g", add_to_shared_latency)
        yield from bandwidths(contest, sides, "bandwidth", "m", add_to_shared_bandwidth)
    with SofthcaSides("udp") as sides:
        yield from latencies(contest, sides, "latency over UDP", "u", add_to_udp_latency)
        yield from bandwidths(contest, sides, "bandwidth over UDP", "s", add_to_udp_bandwidth)
