"""`softhca run`: runs a program of verbs, unmodified, on adapters of its own."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
from contextlib import ExitStack

import softhca
from softhca.testing.faults import Faults
from softhca.tools.command import UNUSABLE, Command, CommandError, count_of, print_error
from softhca.uabi.supervisor import Supervisor

DESCRIPTION = """Runs a program that uses RDMA through libibverbs, or any other way that ends at the
kernel's user ABI, without anything in the kernel: what it finds under /dev/infiniband is an adapter
of softhca. The programs that it starts share the adapter. The exit status is the program's."""

_MOST_DEVICES = 16
_SPARE_PROCESSORS = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what `run` understands."""
    parser.add_argument(
        "--address",
        action="append",
        metavar="IP",
        help="local address or interface to open; once for each device; by default a free "
        "loopback address",
    )
    parser.add_argument(
        "--devices",
        type=count_of(1, _MOST_DEVICES),
        default=None,
        metavar="N",
        help="how many adapters the programs find",
    )
    parser.add_argument(
        "--loss",
        type=_probability,
        default=0.0,
        metavar="P",
        help="lose datagrams that the adapters send with this probability, 0 to 1",
    )
    parser.add_argument("--capture", metavar="FILE", help="write all packets there, as pcapng")
    parser.add_argument(
        "--write-abi",
        action="store_true",
        help="know no ioctl(2), as kernels before 4.20: libraries then use write(2)",
    )
    parser.add_argument(
        "--doorbells",
        choices=("asked", "written"),
        default=None,
        help="how programs tell of sends: by a call that waits for the answer, or by a write that "
        "nobody answers, which costs less with a processor to spare; by default written on four "
        "processors or more",
    )
    parser.add_argument(
        "--refusals", action="store_true", help="say of each refused command why, on stderr"
    )
    parser.add_argument("program", metavar="PROGRAM", help="what to run")
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="...", help="arguments of the program"
    )


def run(args: argparse.Namespace) -> int:
    """Runs the program; returns its status as a shell would."""
    path = shutil.which(args.program)
    if path is None:
        raise CommandError(f"{args.program}: there is no such program", UNUSABLE)
    faults = Faults(drop=args.loss, on="send") if args.loss else None
    with ExitStack() as stack:
        adapters = [
            stack.enter_context(
                softhca.open(address, capture=_capture(args.capture, index), faults=faults)
            )
            for index, address in enumerate(_addresses(args))
        ]
        supervisor = stack.enter_context(
            Supervisor(
                adapters,
                write_only=args.write_abi,
                doorbells_are_written=_doorbells_are_written(args.doorbells),
                on_refusal=_print_refusal if args.refusals else None,
            )
        )
        # What is typed at the terminal reaches the program, and its end is ours.
        for number in (signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        program = supervisor.launch(path, [args.program, *args.arguments])
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: program.signal(number))
        status = supervisor.serve(program)
    return status if status >= 0 else 128 - status


def _probability(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to 1")
    return value


def _doorbells_are_written(choice: str | None) -> bool:
    """Two programs that poll and whoever rings for them have work for three processors."""
    if choice is None:
        return len(os.sched_getaffinity(0)) >= _SPARE_PROCESSORS
    return choice == "written"


def _print_refusal(task: int, error: OSError) -> None:
    print_error(f"softhca run: task {task}: {error}")


def _addresses(args: argparse.Namespace) -> list[str | None]:
    addresses: list[str | None] = list(args.address or [])
    count = args.devices or max(1, len(addresses))
    if len(addresses) > count:
        raise CommandError("more addresses than devices", UNUSABLE)
    return addresses + [None] * (count - len(addresses))


def _capture(path: str | None, index: int) -> str | None:
    """A file for each device."""
    if path is None or index == 0:
        return path
    stem, suffix = os.path.splitext(path)
    return f"{stem}-{index}{suffix}"


COMMAND = Command(
    name="run",
    summary="run an unmodified program of verbs on adapters of its own",
    description=DESCRIPTION,
    add_arguments=add_arguments,
    run=run,
)
