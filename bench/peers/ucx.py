"""UCX's own benchmark, in C: two programs for each figure."""

from __future__ import annotations

import shutil

from bench.peers.absent import AbsentError
from bench.peers.listening import ports, run_both
from bench.processors import two_processors
from bench.turns import Measure

TRANSPORTS = {"SHARED_MEMORY": "posix,sysv,cma,self", "TCP": "tcp,self"}
RUN_SECONDS = 20.0


def _columns(test: str, size: int, count: int, way: str) -> list[float]:
    if shutil.which("ucx_perftest") is None:
        raise AbsentError("no ucx_perftest (Debian: ucx-utils)")
    port = next(ports)
    first, second = map(str, two_processors())
    words = ["ucx_perftest", "-p", str(port), "-f", "-t", test, "-s", str(size), "-n", str(count)]
    words += ["-w", str(max(count // 10, 4))]
    output = run_both(
        ["taskset", "-c", second, *words],
        ["taskset", "-c", first, *words, "127.0.0.1"],
        port,
        {"UCX_TLS": TRANSPORTS[way], "UCX_WARN_UNUSED_ENV_VARS": "n"},
        RUN_SECONDS,
    )
    try:
        return [float(figure) for figure in output.split()[-7:]]
    except ValueError:
        raise AbsentError(f"ucx_perftest -t {test} says nothing by {way.lower()}") from None


def measure_latency(way: str, size: int, count: int = 20_000) -> Measure:
    """Measures seconds of half a round trip of a tagged message."""
    return lambda: _columns("tag_lat", size, count, way)[2] * 1e-6


def measure_rate(way: str, size: int, count: int = 200_000) -> Measure:
    """Measures tagged messages a second, many under way."""
    return lambda: _columns("tag_bw", size, count, way)[6]


def measure_bandwidth(way: str, op: str, size: int) -> Measure:
    """Measures bytes a second of WRITEs, READs or SENDs."""
    test = {"WRITE": "ucp_put_bw", "READ": "ucp_get", "SEND": "tag_bw"}[op]
    count = max((256 << 20) // size, 8)
    return lambda: _columns(test, size, count, way)[6] * size
