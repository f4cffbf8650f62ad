"""Programs that are started here and supervised elsewhere."""

from __future__ import annotations

import errno
import os
import selectors
from collections.abc import Sequence

from softhca._adapter import launch
from softhca.uabi import proc
from softhca.uabi.descriptors import descriptor_ranges
from softhca.uabi.program import Program
from softhca.uabi.serving import connect

_MOMENT_SECONDS = 0.1


class AttachedProgram:
    """A program on the adapters of a supervisor that serves a name.

    Attributes:
        supervisor_has_ended: For the program at least: it answers no call of it any more.
        refusal: Why it did not take the program, if it said so.
    """

    def __init__(self, name: str) -> None:
        """Waits until the supervisor lets it in.

        Raises:
            OSError: ENOENT or ECONNREFUSED, if no supervisor has the name; EOPNOTSUPP, where /proc
                is none or another PID namespace's, or the supervisor cannot see programs from here.
        """
        proc.demand_own()
        self._wire = connect(name)
        heard = self._wire.hear()
        if heard is None:
            raise ConnectionResetError(errno.ECONNRESET, f"the supervisor {name!r} has ended")
        if "refusal" in heard[0]:
            raise OSError(errno.EOPNOTSUPP, heard[0]["refusal"])
        self._doorbells_are_written = bool(heard[0]["doorbells_are_written"])
        self._selector = selectors.DefaultSelector()
        self._program: Program | None = None
        self.supervisor_has_ended = False
        self.refusal: str | None = None

    def launch(self, path: str, arguments: Sequence[str]) -> Program:
        """Starts it, once; as Supervisor.launch()."""
        numbers = descriptor_ranges()
        process, guardian, socket, descriptor = launch(
            os.fsencode(path),
            [os.fsencode(one) for one in arguments],
            [os.fsencode(f"{name}={value}") for name, value in os.environ.items()],
            numbers,
            b"",
            self._doorbells_are_written,
            self._wire.peer,
        )
        try:
            self._wire.tell({"numbers": numbers}, (descriptor,))
        finally:
            os.close(descriptor)
        self._program = Program(process, guardian, socket, self._selector)
        self._selector.register(self._wire.connection, selectors.EVENT_READ, self._hear_of_end)
        return self._program

    def _hear_of_end(self) -> None:
        heard = self._wire.hear()
        if heard is not None:
            self.refusal = str(heard[0].get("refusal"))
        self.supervisor_has_ended = True

    def wait(self, program: Program) -> int | None:
        """Waits for its end; returns its status, or None if the supervisor ended before."""
        while program.status is None and not self.supervisor_has_ended:
            for key, _ in self._selector.select():
                key.data()
        if program.status:
            # It may have failed because nobody answered its calls any more.
            for key, _ in self._selector.select(_MOMENT_SECONDS):
                key.data()
        return None if self.supervisor_has_ended else program.status

    def close(self) -> None:
        """Kills what still runs of it."""
        if self._program is not None:
            self._program.close()
        self._wire.connection.close()
        self._selector.close()

    def __enter__(self) -> AttachedProgram:
        return self

    def __exit__(self, *exception: object) -> None:
        """Closes it."""
        self.close()
