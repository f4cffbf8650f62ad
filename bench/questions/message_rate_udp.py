"""How many small SENDs a second go over UDP, of the datagrams that could?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench.contest import Contest
from bench.contestants import Contestants
from bench.findings import MILLIONS, Better, Finding, Goal
from bench.peers import libfabric, ucx, zmq
from bench.probes import probe
from bench.softhca_sides import SofthcaSides
from bench.turns import Measure

TITLE = "rate at 64 B over UDP, posted as a list"

BYTES = 64
COUNT = 100_000


def stream_rate() -> tuple[str, Measure]:
    """Datagrams a second."""
    letter, read = probe("s", BYTES)
    return letter, lambda: read() / BYTES


def measure_back_and_forth(way: str) -> Measure:
    """Messages a second of libfabric, whose benchmark has one under way at a time."""
    seconds = libfabric.measure_latency(way, BYTES)
    return lambda: 1 / seconds()


def ask(contest: Contest) -> Iterator[Finding]:
    """Compares with a stream of trains of bare datagrams."""
    with SofthcaSides("udp") as sides, Contestants(contest.peers) as among:
        sides.connect("rate", BYTES)
        among.ours("softhca", lambda: sides.rate("rate", COUNT, True), sides.processes)
        among.sides("pyzmq, tcp", partial(zmq.sides, "tcp"), "rate", BYTES, COUNT)
        among.peer("UCX tcp, in C", lambda: ucx.measure_rate("TCP", BYTES, COUNT))
        name = "libfabric udp;ofi_rxd, one under way"
        among.peer(name, lambda: measure_back_and_forth("RELIABLE_UDP"))
        goal = Goal(Better.MORE, 0.2, 0.4)
        yield contest.compare(TITLE, goal, stream_rate(), MILLIONS, among, size=BYTES)
