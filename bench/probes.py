"""The probes in C: programs that stay, and read when they are asked."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Callable
from pathlib import Path

from bench.build import probe_program
from bench.processors import two_processors


class Probe:
    """A program that answers lines with figures, and sleeps in between.

    Args:
        program: It takes the two processors as its first arguments.
        arguments: The others.
    """

    def __init__(self, program: Path, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [program, *map(str, two_processors()), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def processes(self) -> dict[str, int]:
        """Identifiers of the program and of what it has started."""
        own = self._process.pid
        children = Path(f"/proc/{own}/task/{own}/children").read_text().split()
        return {f"side {number}": pid for number, pid in enumerate([own, *map(int, children)])}

    def read(self, size: int, count: int) -> float:
        """Reads the probe for messages of `size` bytes, over `count` of them."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{size} {count}\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"a probe ended: {process.args!r}")
        return float(line)


@functools.cache
def _program(name: str) -> Probe:
    return Probe(probe_program(name))


# By letter: the program, and about how much of it one reading shall take.
_PROGRAMS = {
    "g": ("cache_line", 50_000),
    "r": ("ring", 1_000_000),
    "m": ("copy", 128 << 20),
    "m, by v": ("two_copies", 128 << 20),
    "u": ("udp_round_trip", 3000),
    "u, asked": ("udp_round_trip_asked", 3000),
    "s": ("udp_stream", 32 << 20),
}


def probe(letter: str, size: int = 64) -> tuple[str, Callable[[], float]]:
    """The letter, and how to read the probe for messages of that size.

    c and v are not among them: these are extensions that the processes of the measurement call.
    Two divide nothing: "u, asked" is u by sockets like softhca's; "m, by v" is from one process
    to another by a third, which is all that a supervisor can do where memory is private.
    """
    name, work = _PROGRAMS[letter]
    count = max(work // size, 4) if letter[0] in "ms" else work
    if letter == "s":
        count = min(count, 200_000)
    program = _program(name)
    return letter, lambda: program.read(size, count)
