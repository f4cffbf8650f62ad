"""`softhca trace FILE`: what happened in a simulated fabric, as a ladder, or who wrote a byte."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from softhca.testing import Record, SavedTrace, What
from softhca.testing.record_text import record_text
from softhca.tools.command import Command, CommandError, count_of, print_json

DESCRIPTION = """Shows a trace that a fabric saved (`fabric.trace.save("run.trace")`, or the pytest
plugin): packets between hosts from the top down, with posts, completions and faults. With --to it
writes a page (.html), a drawing (.svg), text (.txt) or a capture (.pcapng) instead."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("file", help="a .trace file")
    parser.add_argument("--to", metavar="OUT", help="write .html, .svg, .txt or .pcapng")
    parser.add_argument(
        "--limit", type=count_of(0, 1 << 40), default=None, help="show at most so many lines"
    )
    parser.add_argument(
        "--who-wrote",
        nargs=2,
        metavar=("HOST", "ADDRESS"),
        help="each write of a byte of a host's memory, and the packet that brought it",
    )


def _json_of(record: Record) -> dict[str, Any]:
    return {
        "at_ns": record.at_ns,
        "what": record.what.name,
        "host": record.host,
        "qpn": record.qpn,
        "packet": record.packet,
        "text": record_text(record),
    }


def _who_wrote(trace: SavedTrace, host: str, address: str, as_json: bool) -> None:
    if host not in trace.hosts:
        raise CommandError(f"there is no host {host}: {', '.join(trace.hosts)}")
    try:
        where = int(address, 0)
    except ValueError:
        raise CommandError(f"{address}: is no address") from None
    found = trace.writes_to(trace.hosts.index(host), where)
    if as_json:
        told = [[_json_of(write), _json_of(sent) if sent else None] for write, sent in found]
        print_json({"writes": told})
        return
    for write, sent in found:
        at = where - write.a
        change = f"{write.before[at]:#04x} to {write.after[at]:#04x}"
        by = "no packet"
        if sent is not None and sent.host is not None:
            by = f"{trace.hosts[sent.host]} {record_text(sent)} at {sent.at_ns} ns"
        print(f"{write.at_ns:>12} ns  {change}, by {by}")
    if not found:
        print("nobody wrote it")


def run(args: argparse.Namespace) -> int:
    """Runs the command."""
    try:
        trace = SavedTrace(args.file)
    except OSError as error:
        raise CommandError(f"{args.file}: {error.strerror or error}") from None
    except ValueError as error:
        raise CommandError(str(error)) from None
    if args.who_wrote:
        _who_wrote(trace, args.who_wrote[0], args.who_wrote[1], args.json)
    elif args.to:
        if Path(args.to).suffix == ".trace":
            raise CommandError("--to must end in .html, .svg, .txt or .pcapng")
        trace.save(args.to)
        if args.json:
            print_json({"hosts": trace.hosts, "written": args.to})
    elif args.json:
        print_json({"hosts": trace.hosts, "records": [_json_of(r) for r in trace]})
    else:
        print(trace.text(args.limit), end="")
        packets = sum(r.what is What.SENT for r in trace)
        print(f"{packets} packets, {len(trace)} records")
    return 0


COMMAND = Command(
    "trace", "show what happened in a simulated fabric", DESCRIPTION, add_arguments, run
)
