"""`softhca COMMAND`: finds the command, runs it, and turns its failures into exit statuses."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO

import softhca
from softhca.tools import demo, devinfo, dump, perf, pingpong, run, serve, trace
from softhca.tools.command import FAILED, CommandError, print_error, print_json

COMMANDS = (
    demo.COMMAND,
    devinfo.COMMAND,
    pingpong.COMMAND,
    perf.COMMAND,
    dump.COMMAND,
    run.COMMAND,
    serve.COMMAND,
    trace.COMMAND,
)

# What a shell reports for a process that SIGINT or SIGPIPE ended.
_INTERRUPTED = 130
_READER_GONE = 141

if TYPE_CHECKING:
    from _typeshed import SupportsWrite


class _Parser(argparse.ArgumentParser):
    """Says when help cannot be written: most versions of argparse drop that error."""

    _is_inside = False

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        print(self.format_help(), end="", file=file)

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        # An error that cannot be written changes no status; argparse up to 3.11.2 lets it.
        with suppress(OSError):
            super()._print_message(message, file)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Takes HOST behind options too, where perftest's users put it.

        A word that may be left out is otherwise taken for left out where options follow.
        """
        may_be_left_out = any(one.nargs == "?" for one in self._get_positional_actions())
        if self._is_inside or not may_be_left_out:
            return super().parse_known_args(args, namespace)
        self._is_inside = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_inside = False


class _Version(argparse.Action):
    """Prints the package's version, and ends the program; the same error is not dropped here."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        print(f"softhca {softhca.__version__}")
        parser.exit()


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = _Parser(
        prog="softhca", description="An RDMA adapter in software: try it, measure it, look inside."
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        one = commands.add_parser(
            command.name, help=command.summary, description=command.description
        )
        command.add_arguments(one)
        one.add_argument("--json", action="store_true", help=command.json_help)
        one.set_defaults(run=command.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command that `arguments` (or the process's) name; returns the exit status."""
    if os.getpid() == 1:  # Of a container: the kernel keeps from it what it does not handle.
        signal.signal(signal.SIGTERM, _end)
    try:
        return _status(arguments)
    finally:
        _settle(sys.stderr)  # Or Python 3.14 makes 120 of the status.


def _end(number: int, _: object) -> None:
    """Ends the process with the status that a shell reports for one that the signal ended."""
    raise SystemExit(128 + number)


def _status(arguments: Sequence[str] | None) -> int:
    try:
        return _answer(arguments)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        status = _READER_GONE
    except OSError as error:  # There was something to say, and nowhere to say it.
        print_error(f"softhca: {error}")
        status = FAILED
    _settle(sys.stdout)
    return status


def _answer(arguments: Sequence[str] | None) -> int:
    try:
        args = make_parser().parse_args(arguments)
    except SystemExit:
        _flush_output()  # Help and versions are printed on the way.
        raise
    if isinstance(sys.stdout, TextIOWrapper):
        # A capture's words may have letters that the terminal lacks.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status: int = args.run(args)
        _flush_output()
    except CommandError as error:
        return _report(args, str(error), error.status)
    except BrokenPipeError:
        raise
    except OSError as error:  # VerbsError is one.
        status = _report(args, str(error), FAILED)
        _settle(sys.stdout)
    return status


def _flush_output() -> None:
    if sys.stdout is not None:  # It is closed.
        sys.stdout.flush()


def _settle(stream: TextIO | None) -> None:
    """Gives up what cannot be written; Python would try once more, and complain, on its way out."""
    if stream is None or stream.closed:
        return
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _report(args: argparse.Namespace, message: str, status: int) -> int:
    if args.json:
        print_json({"error": message})
    print_error(f"softhca {args.command}: {message}")
    return status


if __name__ == "__main__":
    sys.exit(main())
