#!/usr/bin/env python3
"""UCX, Open MPI and others under `softhca run`, as a table; exits with 1 if one of them fails.

    tests/uabi/bigger_programs.py                  everything
    tests/uabi/bigger_programs.py ud_verbs mpirun  rows that contain one of the words

What is not installed, or was built without what a row needs, is skipped with that reason.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from pair import Outcome, run_pair  # noqa: E402
from ucx_modules import lacking_for_perftest, lacking_for_verbs  # noqa: E402

SYSTEM_PYTHON = "/usr/bin/python3"
DEADLINE_SECONDS = 300.0
SIZES = (8, 1024, 65536, 1 << 20)
UCP = (
    *("tag_lat", "tag_bw", "tag_sync_lat", "tag_sync_bw", "ucp_put_lat", "ucp_put_bw", "ucp_get"),
    *("stream_bw", "stream_lat", "ucp_am_lat", "ucp_am_bw"),
)
UCP_ATOMICS = ("ucp_add", "ucp_fadd", "ucp_swap", "ucp_cswap")
# Tests of the transports themselves, with the layouts and sizes that each has.
UCT = {
    "rc_verbs": (
        *("am_lat -s 8", "am_bw -s 8", "am_lat -D bcopy -s 1024", "am_bw -D zcopy -s 4096"),
        *("put_lat -s 8", "put_bw -s 8", "put_bw -D bcopy -s 1024"),
        *("put_lat -D zcopy -s 65536", "put_bw -D zcopy -s 1048576"),
        *("get -D bcopy -s 8", "get -D zcopy -s 65536", "get -D zcopy -s 1048576"),
        *("fadd -s 8", "cswap -s 8", "add_lat -s 8", "add_mr -s 8"),
    ),
    "ud_verbs": (
        *("am_lat -s 8", "am_bw -s 8", "am_lat -D bcopy -s 1024", "am_bw -D zcopy -s 1024"),
    ),
}


@dataclass(frozen=True)
class Row:
    """A program; of two ends, if it has a host's name."""

    name: str
    server: tuple[str, ...]
    client: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    proof: str = ""  # What it must print.


def ucx_rows() -> Iterator[Row]:
    """Of ucx_perftest."""

    def row(transport: str, words: str, *more: str) -> Row:
        environment = {"UCX_NET_DEVICES": "rxe0:1", "UCX_WARN_UNUSED_ENV_VARS": "n"}
        # The strong fence of UCX 1.22 reads with a key that is none, and waits for ever.
        environment["UCX_FENCE_MODE"] = "weak"
        # UCX connects RC through a channel of UD.
        environment["UCX_TLS"] = {"rc_verbs": "rc_verbs,ud_verbs"}.get(transport, transport)
        size = int(words.split()[-1])
        count = "20" if size > 65536 else "100"
        common = ("ucx_perftest", "-t", *words.split(), "-n", count, "-w", "5", *more)
        name = f"ucx_perftest {transport} {words}"
        return Row(name, common, (*common, "127.0.0.1"), tuple(environment.items()), "Final:")

    for transport, tests in UCT.items():
        for words in tests:
            yield row(transport, words, "-d", "rxe0:1", "-x", transport)
        for test in UCP:
            for size in SIZES:
                yield row(transport, f"{test} -s {size}")
        for test in UCP_ATOMICS:
            for size in (4, 8):
                yield row(transport, f"{test} -s {size}")


def mpi_rows() -> Iterator[Row]:
    """Of Open MPI over UCX."""
    environment = {"UCX_NET_DEVICES": "rxe0:1", "OMPI_MCA_btl": "^openib,uct"}
    if os.geteuid() == 0:
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    mpirun = ("mpirun", "--oversubscribe", "-np", "4", "--mca", "pml", "ucx")
    for transports in ("rc_verbs,ud_verbs,self", "ud_verbs,self"):
        for test in ("latency", "bandwidth", "alltoall"):
            yield Row(
                f"mpirun -np 4 {transports.split(',')[0]} {test}",
                (*mpirun, SYSTEM_PYTHON, str(HERE / "mpi_program.py"), test),
                environment=(*environment.items(), ("UCX_TLS", transports)),
                proof=f"{test} is done",
            )


def other_rows() -> Iterator[Row]:
    """Of libfabric, of a binding of PyPI, and of transfer engines."""
    # The provider's message endpoints and its event queues are rdma_cm's; its datagrams are not.
    fabric = ("fi_pingpong", "-p", "verbs;ofi_rxd", "-e", "rdm", "-I", "10")
    name = "fi_pingpong -p 'verbs;ofi_rxd' -e rdm"
    yield Row(name, (*fabric, "-B"), (*fabric, "-P", "PORT", "127.0.0.1"), (), "1m ")
    yield Row("fi_info -p verbs", ("fi_info", "-p", "verbs"), proof="rxe0-dgram")
    yield Row(
        "ibverbs of PyPI",
        (sys.executable, str(HERE / "ibverbs_program.py")),
        proof="bytes are right",
    )
    yield Row(
        "mooncake of PyPI",
        (sys.executable, str(HERE / "mooncake_program.py")),
        proof="bytes are right",
    )
    yield Row(
        "dlslime of PyPI",
        (sys.executable, str(HERE / "dlslime_program.py")),
        proof="bytes are right",
    )
    # Its wheel has a libibverbs of its own, which finds no provider in Debian's places.
    environment = {"LD_PRELOAD": "libibverbs.so.1", "UCX_TLS": "rc_verbs,ud_verbs"}
    yield Row(
        "nixl of PyPI",
        (sys.executable, str(HERE / "nixl_program.py")),
        environment=tuple(environment.items()),
        proof="bytes are right",
    )


def missing(row: Row) -> str:
    """Why a row cannot be run; empty if it can."""
    program = row.server[0]
    if shutil.which(program) is None:
        return f"not installed: {program}"
    if program == "ucx_perftest":
        return lacking_for_perftest()
    wheels = ("ibverbs", "mooncake", "dlslime", "nixl")
    modules = {name: (sys.executable, name) for name in wheels}
    modules["mpirun"] = SYSTEM_PYTHON, "mpi4py"
    python, module = modules.get(row.name.split()[0], ("", ""))
    probe = [python, "-c", f"import {module}"]
    if module and subprocess.run(probe, capture_output=True, check=False).returncode:
        return f"not installed: {module}"
    return lacking_for_verbs() if program == "mpirun" else ""


def run_row(row: Row, port: int) -> Outcome:
    """Runs a row."""
    words = ["env", *(f"{name}={value}" for name, value in row.environment)]
    if not row.client:
        started = time.monotonic()
        limited = ["timeout", str(DEADLINE_SECONDS), *words, *row.server]
        done = subprocess.run(limited, capture_output=True, text=True, check=False)
        problem = f"status {done.returncode}" if done.returncode else ""
        said = done.stdout + done.stderr
        outcome = Outcome(problem, client=said, seconds=time.monotonic() - started)
    else:
        if "-B" in row.server:  # fi_pingpong
            server = [str(port) if word == "PORT" else word for word in (*row.server, "PORT")]
            client = [str(port) if word == "PORT" else word for word in row.client]
        else:
            server = [*row.server, "-p", str(port)]
            client = [*row.client, "-p", str(port)]
        outcome = run_pair([*words, *server], [*words, *client], port, DEADLINE_SECONDS)
    if not outcome.problem and row.proof not in outcome.client:
        outcome.problem = f"it does not say {row.proof!r}"
    return outcome


def run_table(words: list[str]) -> int:
    """Under a supervisor: runs the rows, and prints them."""
    passed = failed = skipped = 0
    every = (*ucx_rows(), *mpi_rows(), *other_rows())
    for number, row in enumerate(every):
        if words and not any(word in row.name for word in words):
            continue
        lacking = missing(row)
        if lacking:
            skipped += 1
            print(f"skip {row.name:50} {lacking}")
            continue
        outcome = run_row(row, 19000 + number)
        failed += bool(outcome.problem)
        passed += not outcome.problem
        note = next(
            (
                " ".join(line.split()[1:])
                for line in outcome.client.splitlines()
                if "Final:" in line
            ),
            "",
        )
        verdict = "FAIL" if outcome.problem else "ok"
        print(f"{verdict:4} {row.name:50} {outcome.seconds:6.1f} s  {note}")
        if outcome.problem:
            for line in (outcome.problem, *(outcome.server + outcome.client).splitlines()[-12:]):
                print(f"     {line}")
        sys.stdout.flush()
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


def main() -> int:
    """Starts a supervisor, and runs the table there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("words", nargs="*", metavar="WORD", help="run rows that contain it")
    options = parser.parse_args()
    if options.inside:
        return run_table(options.words)
    inside = [sys.executable, __file__, "--inside", *options.words]
    run = [sys.executable, "-m", "softhca", "run", "--", *inside]
    return subprocess.run(run, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
