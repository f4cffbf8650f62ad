"""perftest between the two kernel devices of the guest."""

from __future__ import annotations

import math

from bench.peers.absent import AbsentError
from bench.peers.listening import ports, run_both
from bench.processors import two_processors

RUN_SECONDS = 60.0
# It takes the clock's rate anew each time, and where that fails all that it says is "inf".
MOST_TRIES = 5
T_AVG = 5
BW_AVERAGE = 3


class Perftest:
    """Runs a test of perftest for each figure.

    Args:
        gid_index: Of the devices' IPv4 addresses.
    """

    def __init__(self, gid_index: str) -> None:
        self.gid_index = gid_index

    def _figure(self, column: int, test: str, size: int, count: int, *more: str) -> float:
        for _ in range(MOST_TRIES):
            figure = self._columns(test, size, count, *more)[column]
            if math.isfinite(figure) and figure > 0:
                return figure
        raise AbsentError(f"{test} finds no rate of the clock")

    def _columns(self, test: str, size: int, count: int, *more: str) -> list[float]:
        port = next(ports)
        first, second = map(str, two_processors())
        words = [test, "-F", "-x", self.gid_index, "-s", str(size), "-n", str(count)]
        words += ["-p", str(port), *more]
        output = run_both(
            ["taskset", "-c", second, *words, "-d", "rxe1"],
            ["taskset", "-c", first, *words, "-d", "rxe0", "10.9.0.2"],
            port,
            {},
            RUN_SECONDS,
        )
        lines = iter(output.splitlines())
        for line in lines:
            if "#bytes" in line:
                return [float(word) for word in next(lines).split()]
        raise AbsentError(f"{test} says nothing")

    def latency(self, size: int, count: int) -> float:
        """Seconds of half a round trip of SENDs."""
        return self._figure(T_AVG, "ib_send_lat", size, count) * 1e-6

    def bandwidth(self, size: int, count: int) -> float:
        """Bytes a second of WRITEs, many under way; perftest counts in MiB."""
        return self._figure(BW_AVERAGE, "ib_write_bw", size, count, "-t", "64") * (1 << 20)
