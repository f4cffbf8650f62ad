"""libfabric's fi_pingpong, in C: two programs for each figure, one message under way."""

from __future__ import annotations

import shutil

from bench.peers.absent import AbsentError
from bench.peers.listening import ports, run_both
from bench.processors import two_processors
from bench.turns import Measure

# Provider, and its kind of endpoint.
PROVIDERS = {
    "SHARED_MEMORY": ("shm", "rdm"),
    "TCP": ("tcp", "msg"),
    "RELIABLE_UDP": ("udp;ofi_rxd", "rdm"),
}
RUN_SECONDS = 20.0


def _seconds(way: str, size: int, count: int) -> float:
    if shutil.which("fi_pingpong") is None:
        raise AbsentError("no fi_pingpong (Debian: libfabric-bin)")
    provider = PROVIDERS[way]
    port = next(ports)
    first, second = map(str, two_processors())
    words = ["fi_pingpong", "-p", provider[0], "-e", provider[1], "-I", str(count), "-S", str(size)]
    output = run_both(
        ["taskset", "-c", second, *words, "-B", str(port)],
        ["taskset", "-c", first, *words, "-P", str(port), "127.0.0.1"],
        port,
        {},
        RUN_SECONDS,
    )
    try:
        return float(output.split()[-2]) * 1e-6
    except (IndexError, ValueError):
        raise AbsentError(f"fi_pingpong -p {provider[0]} says nothing") from None


def measure_latency(way: str, size: int, count: int = 2000) -> Measure:
    """Measures seconds of half a round trip."""
    return lambda: _seconds(way, size, count)


def measure_bandwidth(way: str, size: int) -> Measure:
    """Measures bytes a second, to and fro."""
    return lambda: size / _seconds(way, size, max((32 << 20) // size, 4))
