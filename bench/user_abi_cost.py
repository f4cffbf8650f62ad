"""What unmodified programs pay: `python -m bench.user_abi_cost [ROW...]`.

Each figure is taken beside its probe, in turns, in one run; the median of the ratios of all turns
counts. Exits with 1 where a goal is missed. Needs perftest, libibverbs' headers and a C compiler.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.uabi.pair import ENDS, run_pair

from bench.build import HERE, TOP, built
from bench.probes import probe

ROUNDS = 5
MIB = 1 << 20
DEADLINE_SECONDS = 120
PORT = 18715


@dataclass(frozen=True)
class Row:
    """A figure, its probe, and what they are to be.

    Attributes:
        compare: Of the figure and the probe.
        at_most: What that is to be at most; or `at_least`.
    """

    name: str
    unit: str
    figure: Callable[[], float]
    probe: Callable[[], float]
    compare: Callable[[float, float], float]
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""


def run(*options: str) -> list[str]:
    """The beginning of a command under a supervisor."""
    return [sys.executable, "-m", "softhca", "run", *options, "--"]


def output(command: list[str]) -> float:
    """The number that a program prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command}\n{done.stderr}")
    return float(done.stdout.split()[-1])


def program() -> str:
    """The program of bench/programs."""
    source = HERE / "programs" / "verbs_calls.c"
    sources = [source, TOP / "tests" / "uabi" / "connected.h"]
    return str(built("verbs_calls", ["gcc", "-O2", str(source), "-libverbs"], sources))


def perftest(
    words: str, column: int, options: tuple[str, ...], hosts: int, link: str = "auto"
) -> float:
    """A column of what perftest measures, under one supervisor or under two."""
    with over(link):
        return perftest_there(words, column, options, hosts)


@contextlib.contextmanager
def over(link: str) -> Iterator[None]:
    """Adapters that are opened meanwhile use this link."""
    before = os.environ.get("SOFTHCA_LINK")
    os.environ["SOFTHCA_LINK"] = link
    yield
    os.environ.pop("SOFTHCA_LINK")
    if before is not None:
        os.environ["SOFTHCA_LINK"] = before


def perftest_there(words: str, column: int, options: tuple[str, ...], hosts: int) -> float:
    """A column of what perftest measures; `{end}` in a word is the name of the end."""
    command = [*words.split(), "-F", "-d", "rxe0", "-x", "0", "-p", str(PORT)]
    if hosts == 2:
        prefix = run(*options)
        server, client = ([word.replace("{end}", end) for word in command] for end in ENDS)
        outcome = run_pair(
            [*prefix, *server], [*prefix, *client, "127.0.0.1"], PORT, DEADLINE_SECONDS
        )
        if outcome.problem:
            raise RuntimeError(f"{words}: {outcome.problem}\n{outcome.server}\n{outcome.client}")
        printed = outcome.client
    else:
        pair = [sys.executable, str(TOP / "tests" / "uabi" / "pair.py"), *command]
        done = subprocess.run(
            [*run(*options), *pair], capture_output=True, text=True, timeout=DEADLINE_SECONDS
        )
        if done.returncode:
            raise RuntimeError(f"{words}\n{done.stdout}\n{done.stderr}")
        printed = done.stdout.partition("client: ")[2]
    lines = [line.split() for line in printed.splitlines() if line[:1] == " "]
    (figures,) = [fields for fields in lines if fields and fields[0].isdigit()]
    return float(figures[column])


def from_python() -> float:
    """Half a round trip of WRITEs of 2 bytes between two processes that have their adapter."""
    command = [sys.executable, "-m", "softhca", "perf", "write_lat", "--self", "--json"]
    done = subprocess.run([*command, "--iters", "2000"], capture_output=True, text=True, check=True)
    (row,) = json.loads(done.stdout)["rows"]
    return float(row["t_typical_usec"])


def bandwidth(
    options: tuple[str, ...],
    hosts: int,
    shared: bool = False,
    link: str = "auto",
    size: int = MIB,
) -> float:
    """Of WRITEs; megabytes a second, where perftest's are of 2^20 bytes.

    `shared`: from and to files in memory, which the supervisor can map too.
    """
    words = f"ib_write_bw -s {size} -n 1000"
    if not shared:
        return perftest(words, 3, options, hosts, link) * 1.048576
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        for end in ENDS:
            (Path(directory) / end).touch()
            os.truncate(Path(directory) / end, 16 * MIB)
        words += f" --mmap={directory}/{{end}}"
        return perftest(words, 3, options, hosts, link) * 1.048576


def megabytes(read: Callable[[], float]) -> float:
    """A probe of bytes a second."""
    return read() / 1e6


def difference(figure: float, other: float) -> float:
    """How much more it is."""
    return figure - other


def ratio(figure: float, other: float) -> float:
    """How many times as much it is."""
    return figure / other


def rows() -> Iterator[Row]:
    """Every row of the table."""
    calls = program()

    def alone(words: str) -> Callable[[], float]:
        return lambda: output([calls, *words.split()])

    def under(words: str, *options: str) -> Callable[[], float]:
        return lambda: output([*run(*options), calls, *words.split()])

    for doorbells, goal in (("written", 5.0), ("asked", None)):
        yield Row(
            f"doorbell, {doorbells}",
            "us",
            under("doorbell 2000", "--doorbells", doorbells),
            lambda: 1.0,
            ratio,
            at_most=goal,
            note="median of 2000, each after 50 us of rest; needs a free processor",
        )
        yield Row(
            f"ibv_req_notify_cq, {doorbells}",
            "us",
            under("arm 2000", "--doorbells", doorbells),
            lambda: 1.0,
            ratio,
            note="the same",
        )
    yield Row(
        "stat(2) of another's file",
        "us",
        under("stat 2000"),
        alone("stat 2000"),
        difference,
        note="asked: only the supervisor sees which file it is",
    )
    for call in ("getpid", "read"):
        words = f"{call} 1000000"
        yield Row(f"{call}(2)", "ns", under(words), alone(words), difference, at_most=200.0)
    for doorbells in ("written", "asked"):
        options = ("--doorbells", doorbells)
        yield Row(
            f"ib_write_lat, {doorbells}",
            "us",
            partial(perftest, "ib_write_lat -n 2000", 4, options, 1),
            from_python,
            ratio,
            at_most=2.0,
            note="softhca perf, from Python",
        )
        yield Row(
            f"ib_send_lat -e, {doorbells}",
            "us",
            partial(perftest, "ib_send_lat -e -n 2000", 4, options, 1),
            lambda: 1.0,
            ratio,
            note="half a round trip of two programs that sleep",
        )
    yield Row(
        "two copies by process_vm, on 2 processors",
        "MB/s",
        partial(megabytes, probe("m, by v", MIB)[1]),
        partial(megabytes, probe("m", MIB)[1]),
        ratio,
        note="memcpy; no program runs: what bounds private memory",
    )
    for where, hosts, shared, link in (
        ("1 host", 1, False, "auto"),
        ("1 host, files in memory", 1, True, "auto"),
        ("2 hosts", 2, False, "auto"),
        ("2 hosts, files in memory", 2, True, "auto"),
        ("2 hosts, UDP", 2, False, "udp"),
    ):
        for doorbells in ("written", "asked"):
            options = ("--doorbells", doorbells)
            name, read = probe(*(("m", MIB) if hosts == 1 else ("s", 4096)))
            yield Row(
                f"ib_write_bw, {where}, {doorbells}",
                "MB/s",
                partial(bandwidth, options, hosts, shared, link),
                partial(megabytes, read),
                ratio,
                at_least=0.5,
                note={"m": "memcpy", "s": "UDP in trains"}[name],
            )
    yield Row(
        "ib_write_bw, 1 host, 4 MiB, asked",
        "MB/s",
        partial(bandwidth, ("--doorbells", "asked"), 1, size=4 * MIB),
        partial(megabytes, probe("m", 4 * MIB)[1]),
        ratio,
        note="memcpy; there is room for huge pages, if the supervisor may make them",
    )


def main(words: list[str]) -> int:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.user_abi_cost", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="ROW", help="rows that contain it")
    words = parser.parse_args(words).words
    missed = 0
    print(f"{'row':44} {'figure':>9} {'probe':>9}        {'':>6}   goal")
    for row in rows():
        if words and not any(word in row.name for word in words):
            continue
        turns = []
        for _ in range(ROUNDS):
            before = row.probe()
            figure = row.figure()
            beside = (before + row.probe()) / 2
            turns.append((row.compare(figure, beside), figure, beside))
        value, figure, beside = (statistics.median(column) for column in zip(*turns, strict=True))
        goal, verdict = "none", "ok"
        if row.at_most is not None:
            goal, verdict = f"<= {row.at_most:g}", "ok" if value <= row.at_most else "MISSED"
        if row.at_least is not None:
            goal, verdict = f">= {row.at_least:g}", "ok" if value >= row.at_least else "MISSED"
        missed += verdict == "MISSED"
        print(
            f"{row.name:44} {figure:9.2f} {beside:9.2f} {row.unit:5} {value:8.2f}   "
            f"{goal:8} {verdict:7} {row.note}",
            flush=True,
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
