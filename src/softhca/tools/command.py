"""What every command is made of: its arguments, its errors, its output."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

# A command's exit status: 0 if all it says held, else one of these.
FAILED = 1  # It ran, and something did not hold.
UNUSABLE = 2  # It could not run: wrong arguments, unreadable input, an address that is taken.


class CommandError(Exception):
    """Ends a command with a message for the user and a status, without a traceback."""

    def __init__(self, message: str, status: int = UNUSABLE) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Command:
    """One command of `softhca`.

    Attributes:
        run: Does it; returns the exit status.
        json_help: What its --json does.
    """

    name: str
    summary: str
    description: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    json_help: str = "print one JSON object instead"


def print_json(value: dict[str, Any]) -> None:
    """Prints one JSON object on a line of its own."""
    print(json.dumps(value), flush=True)


def print_error(text: str) -> None:
    """Prints to where errors go, apart from a command's results.

    In one piece: print() writes the end of the line by itself, and other processes of a command
    may write between the two. What cannot be written is dropped: there is nowhere else to say it,
    and it changes nothing that was done.
    """
    with suppress(OSError):
        print(f"{text}\n", end="", file=sys.stderr, flush=True)


def demand_whole(**numbers: object) -> None:
    """Raises a CommandError for what another program sent as a number and is no whole one."""
    for name, value in numbers.items():
        if type(value) is not int:
            raise CommandError(f"{name} is no whole number: {value!r}")


def count_of(lowest: int, highest: int) -> Callable[[str], int]:
    """A type for argparse: a whole number from `lowest` to `highest`, K, M and G understood."""

    def parse(text: str) -> int:
        digits, unit = (text[:-1], text[-1].upper()) if text[-1:].isalpha() else (text, "")
        factors = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
        try:
            value = int(digits, 0) * factors[unit]
        except (ValueError, KeyError):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if not lowest <= value <= highest:
            raise argparse.ArgumentTypeError(f"{value} is not from {lowest} to {highest}")
        return value

    return parse
