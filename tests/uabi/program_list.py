#!/usr/bin/env python3
"""The programs of libibverbs and perftest with their options, as a table.

Exits with 1 if one of them fails.

    tests/uabi/program_list.py                 one supervisor for both ends, then two
    tests/uabi/program_list.py --setting kernel    softhca against Linux's rxe, in a guest
    tests/uabi/program_list.py --setting one ib_send_bw -- --doorbells written

Words before `--` choose rows that contain one of them; options of `softhca run` stand behind it.
The guest is that of tests/interop/run, and is skipped where that is.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from pair import End, Outcome, run_pair  # noqa: E402

SETTINGS = ("one", "two", "kernel")
# Of both ends under one supervisor, and of the guest: they run inside of something.
INSIDE = ("inside-one", "in-guest", "inside-kernel")
SYSTEM_PYTHON = "/usr/bin/python3"
KERNEL, PEER = "10.9.0.1", "10.9.0.2"
_SLOW_TIMEOUT = "17"  # 0.5 s until a packet is sent again.


@dataclass(frozen=True)
class Row:
    """A program with its options.

    Attributes:
        iterations: Messages, or so.
        refusal: What it says where it cannot run at all, for a reason that is not ours.
    """

    command: str
    iterations: int
    refusal: str = ""
    both_ends: bool = True

    @property
    def is_pingpong(self) -> bool:
        """Whether it has the options of libibverbs' examples."""
        return self.command.startswith(("ibv_", "verbs_bytes"))


def rows(fewer: int) -> Iterator[Row]:
    """Every row; `fewer` divides the iterations."""
    yield Row("ibv_devices", 0, both_ends=False)
    yield Row("ibv_devinfo -v", 0, both_ends=False)
    for flags in ("-c", "-e -c", "-N -c", "-N -e -c", "-c -s 1 -m 4096", "-c -s 1000000 -r 10"):
        yield Row(f"ibv_rc_pingpong {flags}", 200 // fewer)
    for flags in ("-c", "-e -c", "-c -s 65536"):
        yield Row(f"ibv_uc_pingpong {flags}", 200 // fewer)
    for flags in ("-c -s 1024", "-e -c -s 1024"):
        yield Row(f"ibv_ud_pingpong {flags}", 200 // fewer)
    for flags in ("-c -q 4", "-e -c", "-c -s 65536 -q 2"):
        yield Row(f"ibv_srq_pingpong {flags}", 200 // fewer)
    # The provider has no calls of XRC: that is seen before the kernel, or we, are asked.
    yield Row("ibv_xsrq_pingpong -c 1", 0, refusal="Couldn't Open the XRC Domain")
    yield Row("verbs_bytes", 0)
    for verb in ("send", "write", "read", "atomic"):
        yield from _perftest(verb, fewer)


def _perftest(verb: str, fewer: int) -> Iterator[Row]:
    kinds = ["", "-c UC", "-c UD"] if verb == "send" else ["", "-c UC"] if verb == "write" else [""]
    all_sizes = ["-a"] if verb != "atomic" else []
    shared = ["--use-srq"] if verb == "send" else []
    # perftest itself has no events of writes.
    events = ["-e"] if verb != "write" else []
    options = ["", *all_sizes, *events, "-q 8", "-b", "-l 16", *shared, "-q 8 -b"]
    commands = [f"ib_{verb}_bw {extra}" for extra in options]
    commands += [f"ib_{verb}_lat {extra}" for extra in ("", *all_sizes, *events, *shared)]
    for kind, test, extra in itertools.product(kinds[1:], ("bw", "lat"), ("", "-a", *events)):
        commands.append(f"ib_{verb}_{test} {kind} {extra}")
    for command in commands:
        if fewer > 1 and "UC" in command and command.endswith("-a"):
            continue  # A message that is lost ends these, and the guest's network loses some.
        # Every size up to 8 MiB, so many times.
        iterations = max(5, 10 // fewer) if command.endswith("-a") else 320 // fewer
        yield Row(command.strip(), iterations)


def words_of(row: Row, end: End, port: int) -> list[str]:
    """What one end runs."""
    program, *options = row.command.split()
    words = [*end.prefix, program]
    if program == "verbs_bytes":
        words[-1:] = [SYSTEM_PYTHON, str(HERE / "verbs_bytes.py")]
    if not row.both_ends:
        return [*words, *options]
    counted = ["-n", str(row.iterations)] if row.iterations else []
    if row.is_pingpong:
        return [*words, *options, *counted, "-g", str(end.gid_index), "-p", str(port)]
    # -F: whatever the processor's frequency does is not our business.
    named = ["-F", "-d", "rxe0", "-x", str(end.gid_index), "-p", str(port)]
    if end.is_slow and "-c" not in options:
        named += ["-u", _SLOW_TIMEOUT]
    if end.is_slow and program.startswith(("ib_read", "ib_atomic")):
        named += ["-o", "16"]  # The kernel's device has more reads outstanding than ours answers.
    return [*words, *options, *counted, *named]


def run_row(row: Row, server: End, client: End, port: int, deadline: float) -> Outcome:
    """Runs a row."""
    if not row.both_ends:
        words = words_of(row, client, port)
        words = ["timeout", str(deadline), *words]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        wrong = done.returncode or "rxe0" not in done.stdout
        return Outcome(f"status {done.returncode}" if wrong else "", client=done.stdout)
    there = [*words_of(row, client, port), server.address]
    outcome = run_pair(words_of(row, server, port), there, port, deadline, server.network)
    if row.refusal:
        said = row.refusal in outcome.server
        outcome.problem = "" if said else f"not refused as expected: {outcome.problem}"
    return outcome


def run_table(
    label: str, chosen: Sequence[Row], server: End, client: End, deadline: float
) -> tuple[int, int]:
    """Runs rows and prints them; returns how many passed and failed."""
    failed = 0
    for number, row in enumerate(chosen):
        outcome = run_row(row, server, client, 18600 + number, deadline)
        failed += bool(outcome.problem)
        note = "refused by the provider" if row.refusal else _figure(outcome.client)
        verdict = "FAIL" if outcome.problem else "ok"
        print(f"{verdict:4} {label:16} {row.command:38} {outcome.seconds:6.1f} s  {note}")
        if outcome.problem:
            print(f"     {outcome.problem}")
            for end, said in (("server", outcome.server), ("client", outcome.client)):
                lines = said.strip().splitlines()
                # What is said on stderr stands before what was said earlier on stdout.
                telling = [
                    line for line in lines[:-4] if re.search("error|fail|status", line, re.I)
                ]
                for line in telling[:4] + lines[-4:]:
                    print(f"     {end}: {line}")
        sys.stdout.flush()
    return len(chosen) - failed, failed


def _figure(printed: str) -> str:
    """What a program measured: its last line of figures, or of words with seconds."""
    for line in reversed(printed.splitlines()):
        fields = line.split()
        if line[:1] == " " and fields and fields[0].isdigit():
            return " ".join(fields)
        if "iters in" in line or "bytes are right" in line:
            return line.strip()
    return ""


def run_in_guest(arguments: argparse.Namespace) -> int:
    """In the guest: everything under a supervisor in the namespace `peer`, but the kernel's end."""
    outside = "/tmp/outside"
    command = [sys.executable, str(HERE / "outside.py"), "--serve", outside]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as kernel:
        assert kernel.stdout is not None
        kernel.stdout.readline()
        index = next(
            entry.name
            for entry in Path("/sys/class/infiniband/rxe0/ports/1/gids").iterdir()
            if "ffff:0a09" in entry.read_text()
        )
        run = (sys.executable, "-m", "softhca", "run", "--address", PEER, *arguments.options, "--")
        again = ["--setting", "inside-kernel", "--kernel", f"{outside} {kernel.pid} {index}"]
        words = [*again, "--deadline", str(arguments.deadline), *arguments.words]
        done = subprocess.run(
            ["ip", "netns", "exec", "peer", *run, sys.executable, __file__, *words], check=False
        )
        kernel.kill()
    return done.returncode


def run_inside_guest(arguments: argparse.Namespace, chosen: list[Row]) -> int:
    """There, under the supervisor."""
    outside, process, index = arguments.kernel.split()
    prefix = (sys.executable, "-S", str(HERE / "outside.py"), outside)
    kernel = End(prefix, int(index), KERNEL, int(process), is_slow=True)
    softhca = End((), 0, PEER, is_slow=True)
    done = [
        run_table(label, chosen, server, client, arguments.deadline)
        for label, server, client in (
            ("softhca -> kernel", kernel, softhca),
            ("kernel -> softhca", softhca, kernel),
        )
    ]
    return _summarize(done)


def _summarize(done: Sequence[tuple[int, int]]) -> int:
    passed, failed = sum(one for one, _ in done), sum(one for _, one in done)
    print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if failed or not passed else 0


def run_setting(setting: str, arguments: argparse.Namespace, chosen: list[Row]) -> int:
    """Runs the table in one setting."""
    again = [*arguments.words, "--deadline", str(arguments.deadline), "--", *arguments.options]
    run = (sys.executable, "-m", "softhca", "run", *arguments.options, "--")
    if setting == "inside-one":
        return _summarize([run_table("one supervisor", chosen, End(), End(), arguments.deadline)])
    if setting == "in-guest":
        return run_in_guest(arguments)
    if setting == "inside-kernel":
        return run_inside_guest(arguments, chosen)
    if setting == "one":
        inside = [sys.executable, str(HERE / "program_list.py"), "--setting", "inside-one"]
        return subprocess.run([*run, *inside, *again], check=False).returncode
    if setting == "two":
        ends = End(run), End(run)
        return _summarize([run_table("two supervisors", chosen, *ends, arguments.deadline)])
    guest = HERE.parent / "interop" / "run"
    inside = ["programs.sh", "--setting", "in-guest", *again]
    # In this process's place: whoever ends this ends the guest.
    os.execv(sys.executable, [sys.executable, str(guest), "--script", *inside])
    raise AssertionError


def main() -> int:
    """Runs the table in each setting that is asked for."""
    # What stands behind the first `--` is not ours to read.
    mine, options = sys.argv[1:], []
    if "--" in mine:
        at = mine.index("--")
        mine, options = mine[:at], mine[at + 1 :]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--setting", action="append", choices=SETTINGS + INSIDE, metavar="WHICH")
    parser.add_argument("--kernel", help=argparse.SUPPRESS)
    parser.add_argument("--deadline", type=float, default=400.0, metavar="SECONDS")
    parser.add_argument("words", nargs="*", metavar="WORD")
    arguments = parser.parse_args(mine)
    arguments.options = options
    settings = arguments.setting or ["one", "two"]
    in_guest = "inside-kernel" in settings
    if not {"kernel", "in-guest"} & set(settings) and shutil.which("ib_send_bw") is None:
        print("skipped: perftest is not installed")
        return 0
    # The guest computes in software.
    chosen = [
        row
        for row in rows(10 if in_guest else 1)
        if not arguments.words or any(word in row.command for word in arguments.words)
    ]
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    failed = [run_setting(one, arguments, chosen) for one in settings if one != "kernel"]
    if any(failed) or "kernel" not in settings:
        return max(failed)
    return run_setting("kernel", arguments, chosen)


if __name__ == "__main__":
    sys.exit(main())
