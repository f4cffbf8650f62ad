"""How fast do bytes move over UDP, of what bare trains of datagrams do?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench.contest import Contest
from bench.contestants import Contestants
from bench.findings import GIGABYTES, Better, Finding, Goal
from bench.peers import libfabric, ucx
from bench.peers.python import PythonSides
from bench.probes import probe
from bench.softhca_sides import SofthcaSides

TITLE = "RC bytes over UDP, 1 MiB, ICRC on, path MTU 4096"

BYTES = 1 << 20
PATH_MTU = 4096
COUNT = 128
WINDOW = 4
MANY = [f"stream of {number}" for number in range(8)]
WHY = """\
The sender is the busier side, and the probe is all of its `kernel` but the wake-ups and what it
asks for acknowledgements. Besides, it copies the payload behind each packet's headers and makes
an ICRC of it, and the receiver checks that and copies the payload to where it belongs."""


def ask(contest: Contest) -> Iterator[Finding]:
    """Compares with a stream of bare datagrams that carry as much."""
    with SofthcaSides("udp") as sides, Contestants(contest.peers) as among:
        sides.connect("stream", BYTES)
        stream = partial(sides.stream, "stream", "WRITE", COUNT, WINDOW)
        among.ours("softhca, WRITE", stream, sides.processes)
        for key in MANY:
            sides.connect(key, BYTES)
        many = partial(sides.streams, MANY, COUNT // len(MANY))
        among.ours(f"softhca, WRITE, {len(MANY)} queue pairs", many)
        among.sides("Python TCP", partial(PythonSides, "tcp"), "stream", BYTES, COUNT)
        among.peer("UCX tcp, in C", lambda: ucx.measure_bandwidth("TCP", "SEND", BYTES))
        among.peer("libfabric tcp, in C", lambda: libfabric.measure_bandwidth("TCP", BYTES))
        rxd = "libfabric udp;ofi_rxd"
        among.peer(rxd, lambda: libfabric.measure_bandwidth("RELIABLE_UDP", BYTES))
        goal = Goal(Better.MORE, 0.6, 0.8)
        limit = probe("s", PATH_MTU)
        finding = contest.compare(TITLE, goal, limit, GIGABYTES, among, size=BYTES, because=WHY)
        for key in ("stream", *MANY):
            sides.verify(key, "WRITE")
        yield finding
