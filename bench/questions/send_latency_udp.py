"""How long does a small SEND take over UDP, in round trips of bare datagrams?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench.contest import Contest
from bench.contestants import Contestants
from bench.findings import MICROSECONDS, Better, Finding, Goal
from bench.peers import libfabric, ucx, zmq
from bench.peers.python import PythonSides
from bench.probes import probe
from bench.softhca_sides import SofthcaSides

TITLE = "RC SEND, half round trip over UDP, 64 B"

BYTES = 64
COUNT = 5000
WHY = """\
The line of bare UDP that is asked as softhca asks shows what sockets like ours take: they want to
know the sender of what comes, and take trains, of which the kernel has to look at each datagram.
What is left is Python, RC's state and its two ICRCs, and the locks of an adapter that has a thread
of its own."""


def add_peers(among: Contestants, size: int) -> None:
    """Those that move small messages over a network."""
    for kind, name in (("tcp", "Python TCP, spinning"), ("udp", "Python UDP, spinning")):
        among.sides(name, partial(PythonSides, kind), "ping_pong", size, COUNT)
    among.peer("bare UDP, asked as softhca asks, in C", lambda: probe("u, asked", size)[1])
    among.sides("asyncio streams", lambda: PythonSides("asyncio"), "ping_pong", size, COUNT)
    among.sides("pyzmq, tcp", lambda: zmq.sides("tcp"), "ping_pong", size, COUNT)
    among.peer("libfabric tcp, in C", lambda: libfabric.measure_latency("TCP", size))
    among.peer("libfabric udp;ofi_rxd", lambda: libfabric.measure_latency("RELIABLE_UDP", size))
    among.peer("UCX tcp, in C", lambda: ucx.measure_latency("TCP", size, COUNT))


def ask(contest: Contest) -> Iterator[Finding]:
    """Compares with sockets that do nothing but spin."""
    with SofthcaSides("udp") as sides, Contestants(contest.peers) as among:
        sides.connect("latency", BYTES)
        among.ours("softhca", lambda: sides.ping_pong("latency", COUNT), sides.processes)
        add_peers(among, BYTES)
        goal = Goal(Better.LESS, 1.5, 1.3)
        yield contest.compare(
            TITLE, goal, probe("u", BYTES), MICROSECONDS, among, size=BYTES, because=WHY
        )
