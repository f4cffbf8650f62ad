"""Contestants of a question: those that are here, and why the others are not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack

from bench.closing import Closes
from bench.turns import Measure, WithdrawnError
from bench.two_sides import TwoSides


class Contestants(Closes):
    """Names to measurements, and the processes behind them.

    Attributes:
        measures: Those that take part, in the order in which they were added.
        absent: Why the others do not.
        processes: Ours, by name, where they can be looked at while they are measured.
    """

    def __init__(self, peers: bool) -> None:
        self.measures: dict[str, Measure] = {}
        self.absent: dict[str, str] = {}
        self.processes: dict[str, int] = {}
        self._peers = peers
        self._stack = ExitStack()

    def close(self) -> None:
        """Ends what was begun for them."""
        self._stack.close()

    def ours(self, name: str, measure: Measure, processes: Mapping[str, int] | None = None) -> None:
        """Adds what the goal is for, or another way of ours."""
        self.measures[name] = measure
        self.processes.update(processes or {})

    def peer(self, name: str, begin: Callable[[], Measure]) -> None:
        """Adds a peer if it begins and can be measured once."""
        if not self._peers:
            return
        try:
            measure = begin()
            measure()
        except (WithdrawnError, OSError) as error:
            self.absent[name] = str(error).strip().splitlines()[-1]
        else:
            self.measures[name] = measure

    def sides(
        self, name: str, start: Callable[[], TwoSides], order: str, *arguments: object
    ) -> None:
        """Adds a peer of two processes, measured by an order to both that side 0 answers."""

        def begin() -> Measure:
            both = self._stack.enter_context(start())
            return lambda: both.measured(order, *arguments)

        self.peer(name, begin)

    def alone(self, name: str, start: Callable[[], TwoSides], count: int) -> None:
        """Adds mpi4py's put and flush, within side 0."""

        def begin() -> Measure:
            both = self._stack.enter_context(start())
            return lambda: float(both.tell(0, "put_and_flush", count))

        self.peer(name, begin)

    def clear(self) -> None:
        """Ends the processes, and forgets everything, for the next comparison."""
        self._stack.close()
        self.measures.clear()
        self.absent.clear()
        self.processes.clear()
