"""Runs a program of two ends: a server, and when that listens a client.

Nothing but the standard library: guests run it too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

ENDS = ("server", "client")
_LISTENING = "0A"


@dataclass(frozen=True)
class End:
    """Where one end runs.

    Attributes:
        prefix: What the program's words stand behind.
        gid_index: The entry of its GID table.
        address: What the other end finds it by, if it is the server.
        is_slow: Whether it runs in a machine that computes in software.
        network: A process in whose network it runs, if that is not its own.
    """

    prefix: tuple[str, ...] = ()
    gid_index: int = 0
    address: str = "127.0.0.1"
    network: int | None = None
    is_slow: bool = False


@dataclass
class Outcome:
    """How both ended, and what they printed.

    Attributes:
        problem: What went wrong; empty if nothing did.
    """

    problem: str
    server: str = ""
    client: str = ""
    seconds: float = 0.0
    statuses: tuple[int | None, int | None] = field(default=(None, None))


def listens(port: int, process: int | str = "self") -> bool:
    """Whether somebody listens on a port of TCP, in the network of a process."""
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{process}/net/{table}") as lines:
                listed = [line.split()[1:4:2] for line in lines]
        except OSError:
            continue
        if any(state == _LISTENING and at.endswith(f":{port:04X}") for at, state in listed):
            return True
    return False


def run_pair(
    server: Sequence[str],
    client: Sequence[str],
    port: int,
    deadline_seconds: float,
    network: int | None = None,
) -> Outcome:
    """Runs both; whoever takes longer than the deadline is killed.

    `network` is a process in whose network the server listens, if that is not its own.
    """
    started = time.monotonic()
    deadline = started + deadline_seconds
    first = _Process(server)
    try:
        while not listens(port, network or first.process.pid) and first.process.poll() is None:
            if time.monotonic() > deadline:
                return Outcome("the server does not listen", server=first.end(0))
            time.sleep(0.02)
        second = _Process(client)
        printed = second.end(deadline - time.monotonic())
        # A server whose client failed may wait for ever.
        patience = deadline - time.monotonic() if second.process.returncode == 0 else 2
        at_server = first.end(patience)
    finally:
        first.end(0)
    statuses = (first.process.returncode, second.process.returncode)
    problem = "" if statuses == (0, 0) else f"server {statuses[0]}, client {statuses[1]}"
    return Outcome(problem, at_server, printed, time.monotonic() - started, statuses)


class _Process:
    """A process whose output is kept."""

    def __init__(self, words: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._printed = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as out:
            while octets := os.read(out.fileno(), 65536):
                self._printed += octets

    def end(self, patience: float) -> str:
        """Waits for its end, at most so long, then kills it; returns what it printed."""
        try:
            self.process.wait(max(0.0, patience))
        except subprocess.TimeoutExpired:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._reader.join(5)
        return self._printed.decode(errors="replace")


def main() -> int:
    """`pair.py PROGRAM... -p PORT`: prints what both ends printed; 0 if both did.

    `{end}` in a word is the name of the end, server or client.
    """
    command = sys.argv[1:]
    port = int(command[command.index("-p") + 1])
    server, client = ([word.replace("{end}", end) for word in command] for end in ENDS)
    outcome = run_pair(server, [*client, "127.0.0.1"], port, 100)
    at_server, at_client = outcome.statuses
    print(f"server: {at_server}\n{outcome.server}\nclient: {at_client}\n{outcome.client}")
    return 1 if outcome.problem else 0


if __name__ == "__main__":
    sys.exit(main())
