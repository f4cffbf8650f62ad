"""What `softhca run` and `softhca serve` have in common: adapters, and their supervisor."""

from __future__ import annotations

import argparse
import os
from contextlib import ExitStack
from functools import partial

import softhca
from softhca.testing.faults import Faults
from softhca.tools.command import UNUSABLE, CommandError, count_of, print_error
from softhca.uabi.descriptors import raise_own_limit
from softhca.uabi.supervisor import Supervisor

_MOST_DEVICES = 16
_SPARE_PROCESSORS = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of adapters and supervisors."""
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


def demand_untouched(args: argparse.Namespace) -> None:
    """Refuses options that another supervisor's adapters would not heed."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    for name, untouched in vars(parser.parse_args([])).items():
        if getattr(args, name) != untouched:
            option = name.replace("_", "-")
            raise CommandError(
                f"--{option} is for the `softhca serve` that is attached to", UNUSABLE
            )


def supervisor_of(args: argparse.Namespace, stack: ExitStack) -> Supervisor:
    """The supervisor that the options ask for; it and its adapters end with the stack."""
    # It has descriptors for all of its programs, and each of these as many as it would have anyway.
    descriptor_limit = raise_own_limit()
    faults = Faults(drop=args.loss, on="send") if args.loss else None
    adapters = [
        stack.enter_context(
            softhca.open(address, capture=_capture(args.capture, index), faults=faults)
        )
        for index, address in enumerate(_addresses(args))
    ]
    stack.callback(_tell_of_lost_captures, args.command, adapters)
    return stack.enter_context(
        Supervisor(
            adapters,
            write_only=args.write_abi,
            doorbells_are_written=_doorbells_are_written(args.doorbells),
            descriptor_limit=descriptor_limit,
            on_refusal=partial(_print_refusal, args.command) if args.refusals else None,
            on_trouble=partial(_say, args.command),
        )
    )


def _probability(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to 1")
    return value


def _doorbells_are_written(choice: str | None) -> bool:
    """Two programs that poll and whoever rings for them have work for three processors."""
    if choice is None:
        return len(os.sched_getaffinity(0)) >= _SPARE_PROCESSORS
    return choice == "written"


def _print_refusal(command: str, task: int, error: OSError) -> None:
    _say(command, f"task {task}: {error}")


def _tell_of_lost_captures(command: str, adapters: list[softhca.Device]) -> None:
    """The exit status is the program's: a capture that ended early is no reason for another."""
    for adapter in adapters:
        if failure := adapter.link_counters["capture_failure"]:
            _say(command, str(failure))


def _say(command: str, text: str) -> None:
    print_error(f"softhca {command}: {text}")


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
