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
The probe's half round trip is a send and a receive by sockets that are connected. Ours cannot
be: the kernel would count the IPv4 identification, which the ICRC covers and no socket tells,
and each send looks for its route instead. What comes is asked for its sender, traffic class and
hop limit, which completions tell. Both is the kernel's time; what is left in `softhca` is two
ICRCs and RC's state."""


def add_peers(among: Contestants, size: int) -> None:
    """Those that move small messages over a network."""
    for kind, name in (("tcp", "Python TCP, spinning"), ("udp", "Python UDP, spinning")):
        among.sides(name, partial(PythonSides, kind), "ping_pong", size, COUNT)
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
