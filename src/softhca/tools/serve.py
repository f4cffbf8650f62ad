"""`softhca serve`: adapters that outlive the programs that use them."""

from __future__ import annotations

import argparse
import signal
from contextlib import ExitStack, suppress

from softhca.tools import supervising
from softhca.tools.command import Command, print_json
from softhca.uabi.serving import Door

DESCRIPTION = """Makes adapters for programs that `softhca run --attach NAME` starts, one after the
other or at once, as the adapters of a host are there for its programs. It ends by SIGTERM or
SIGINT, and what runs on its adapters with it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what `serve` understands."""
    supervising.add_arguments(parser)
    parser.add_argument("name", metavar="NAME", help="by which programs come to it")


def run(args: argparse.Namespace) -> int:
    """Serves until it is told to end; returns 0."""
    with ExitStack() as stack:
        door = Door(args.name)
        stack.callback(door.close)
        supervisor = supervising.supervisor_of(args, stack)
        supervisor.open_door(door)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _end)
        addresses = [str(device.adapter.gid.ip) for device in supervisor.devices]
        if args.json:
            print_json({"name": args.name, "addresses": addresses})
        else:
            print(f"{args.name} serves {', '.join(addresses)}", flush=True)
        with suppress(SystemExit):
            while True:
                supervisor.serve_once(None)
        # The rest is not to be interrupted.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    return 0


def _end(number: int, frame: object) -> None:
    raise SystemExit


COMMAND = Command(
    name="serve",
    summary="make adapters for unmodified programs that come and go",
    description=DESCRIPTION,
    add_arguments=add_arguments,
    run=run,
)
