"""Two processes of a contestant, on a processor each, that take orders."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

from bench.build import TOP
from bench.closing import Closes
from bench.processors import two_processors
from bench.turns import WithdrawnError

# What starting both may take, on a machine that has much else to do.
START_SECONDS = 60.0
ANSWER_SECONDS = 120.0


class SideError(WithdrawnError):
    """One of the sides could not do what it was told; with its traceback."""


class TwoSides(Closes):
    """Starts the worker with a module, twice, and gives orders.

    Args:
        module: What the worker imports.
        options: For its `Side`.
        python: The interpreter.
        launcher: What starts both, such as mpiexec; empty: each is started by itself.
        before: What stands before the command of either side, when started by itself.
        environment: Variables besides ours.
    """

    def __init__(
        self,
        module: str,
        *options: str,
        python: str = sys.executable,
        launcher: Sequence[str] = (),
        before: tuple[Sequence[str], Sequence[str]] = ((), ()),
        environment: dict[str, str] | None = None,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="bench-")
        address = str(Path(self._folder.name) / "orders")
        listener = Listener(address, "AF_UNIX")
        command = [python, "-m", "bench.worker", address, module, *options]
        paths = [str(TOP), *filter(None, [os.environ.get("PYTHONPATH")])]
        variables = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "BENCH_CPUS": ",".join(map(str, two_processors())),
            **(environment or {}),
        }
        self._channels: dict[int, Connection[Any, Any]] = {}
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            if launcher:
                self._start([*launcher, *command], variables)
            else:
                for number in (0, 1):
                    words = [*before[number], *command]
                    self._start(words, {**variables, "BENCH_SIDE": str(number)})
            self._accept(listener)
            for number in (0, 1):
                self._answer(number)
        except BaseException:
            listener.close()
            self.close()
            raise
        listener.close()

    def _start(self, command: list[str], variables: dict[str, str]) -> None:
        # A group of its own, so that what a launcher started ends with it.
        self._processes.append(subprocess.Popen(command, env=variables, start_new_session=True))

    def _accept(self, listener: Listener) -> None:
        end = time.monotonic() + START_SECONDS
        # The standard library has no other way to wait for a connection with a limit.
        socket = listener._listener._socket  # type: ignore[attr-defined]
        socket.settimeout(0.2)
        while len(self._channels) < 2:
            try:
                channel = listener.accept()
            except TimeoutError:
                if any(process.poll() for process in self._processes):
                    raise SideError("a side ended before it began") from None
                if time.monotonic() > end:
                    raise SideError("the sides did not start in time") from None
                continue
            self._channels[channel.recv()] = channel

    @property
    def processes(self) -> dict[str, int]:
        """Identifiers of what was started for either side, when each was started by itself."""
        return {f"side {number}": side.pid for number, side in enumerate(self._processes)}

    def close(self) -> None:
        """Ends the processes."""
        for channel in self._channels.values():
            channel.close()
        for process in self._processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._folder.cleanup()

    def tell(self, number: int, name: str, *arguments: Any) -> Any:
        """Lets one side do something, and returns its answer."""
        self._channels[number].send((name, arguments))
        return self._answer(number)

    def both(self, name: str, *arguments: Any) -> tuple[Any, Any]:
        """Lets both do something at the same time."""
        return self.each(name, arguments, arguments)

    def each(self, name: str, first: tuple[Any, ...], second: tuple[Any, ...]) -> tuple[Any, Any]:
        """Lets both do something at the same time, with arguments of their own."""
        # The second side first: it is the one that waits for the other.
        self._channels[1].send((name, second))
        self._channels[0].send((name, first))
        return self._answer(0), self._answer(1)

    def measured(self, name: str, *arguments: Any) -> float:
        """Lets both measure something, and returns the figure of side 0.

        Twice, and the first time does not count: while others were measured the sides slept, and
        with them their processors, which take some time to be fast again.
        """
        for _ in range(2):
            figure = float(self.both(name, *arguments)[0])
        return figure

    def _answer(self, number: int) -> Any:
        channel = self._channels[number]
        if not channel.poll(ANSWER_SECONDS):
            raise SideError(f"side {number} does not answer")
        try:
            good, answer = channel.recv()
        except EOFError:
            raise SideError(f"side {number} is gone") from None
        if not good:
            raise SideError(answer)
        return answer
