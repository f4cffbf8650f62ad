"""How do latency and bandwidth go with the size of a message? This is what the plots show."""

from __future__ import annotations

from collections.abc import Iterator
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


def window(size: int) -> int:
    """Messages under way."""
    return max(2, min(32, (4 << 20) // size))


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


def within_a_host(contest: Contest, sides: SofthcaSides) -> Iterator[Finding]:
    """Shared memory."""
    for size in LATENCY_SIZES:
        key = f"latency {size}"
        sides.connect(key, size)
        with Contestants(contest.peers) as among:
            among.ours("softhca", partial(sides.ping_pong, key, TURNS))
            start = partial(mpi.sides, "Open MPI")
            among.sides("mpi4py, Open MPI", start, "ping_pong", size, TURNS)
            among.sides("Pipe", partial(PythonSides, "pipe"), "ping_pong", size, TURNS)
            among.sides("pyzmq, ipc", partial(zmq.sides, "ipc"), "ping_pong", size, TURNS)
            among.peer("UCX, in C", partial(ucx.measure_latency, "SHARED_MEMORY", size))
            yield point(contest, "latency", size, probe("g"), among)
    for size in BANDWIDTH_SIZES:
        key = f"WRITE {size}"
        sides.connect(key, size)
        count = max(BYTES // size, 4)
        with Contestants(contest.peers) as among:
            measure = partial(sides.stream, key, "WRITE", count, window(size))
            among.ours("softhca, WRITE", measure)
            start = partial(mpi.sides, "Open MPI")
            among.sides("mpi4py Put, Open MPI", start, "stream", "WRITE", size, count)
            name = "UCX put, in C"
            among.peer(name, partial(ucx.measure_bandwidth, "SHARED_MEMORY", "WRITE", size))
            yield point(contest, "bandwidth", size, probe("m", size), among)


def over_udp(contest: Contest, sides: SofthcaSides) -> Iterator[Finding]:
    """UDP, and what else goes over networks."""
    for size in LATENCY_SIZES:
        key = f"latency {size}"
        sides.connect(key, size)
        with Contestants(contest.peers) as among:
            among.ours("softhca", partial(sides.ping_pong, key, TURNS))
            among.sides("Python TCP", partial(PythonSides, "tcp"), "ping_pong", size, TURNS)
            among.sides("pyzmq, tcp", partial(zmq.sides, "tcp"), "ping_pong", size, TURNS)
            among.peer("libfabric tcp, in C", partial(libfabric.measure_latency, "TCP", size))
            yield point(contest, "latency over UDP", size, probe("u", size), among)
    for size in BANDWIDTH_SIZES:
        key = f"WRITE {size}"
        sides.connect(key, size)
        count = max(BYTES // size, 4)
        with Contestants(contest.peers) as among:
            measure = partial(sides.stream, key, "WRITE", count, window(size))
            among.ours("softhca, WRITE", measure)
            among.sides("Python TCP", partial(PythonSides, "tcp"), "stream", size, count)
            among.peer("UCX tcp, in C", partial(ucx.measure_bandwidth, "TCP", "SEND", size))
            yield point(contest, "bandwidth over UDP", size, probe("s", 4096), among)


def ask(contest: Contest) -> Iterator[Finding]:
    """Compares with the probes that the other questions use."""
    with SofthcaSides() as sides:
        yield from within_a_host(contest, sides)
    with SofthcaSides("udp") as sides:
        yield from over_udp(contest, sides)
