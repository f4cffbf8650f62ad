"""Programs of several hosts in one process, of which one goes at a time."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from softhca._adapter import FabricStop
from softhca.testing.errors import DeadlockError, FabricError

if TYPE_CHECKING:
    from softhca.testing.virtual_time import VirtualTime

E = TypeVar("E")
Waiting = tuple[str, str, int]  # Who waits for what, and since when.
_NEVER = (1 << 64) - 1
# How long a program that has the turn may go on when the scheduler is interrupted.
_LONGEST_S = 2.0


class _Ended(BaseException):
    """Unwinds a program that is not to go on, since another one failed."""


def demand_no_coroutine(argument: str, given: object) -> None:
    """Refuses what an async function returns: it has not begun, and nobody would await it.

    Raises:
        TypeError: If it is a coroutine.
    """
    if inspect.iscoroutine(given):
        given.close()
        rule = "must not be async: let it call fabric.run_async()"
        raise TypeError(f"{argument} {rule}, which runs a coroutine in virtual time")


class Program:
    """One program: a thread that goes only when it is let."""

    def __init__(self, programs: Programs, call: Callable[[], Any], name: str) -> None:
        self.name = name
        self.result: Any = None
        self.error: BaseException | None = None
        self.finished = False
        self.waits_for = "its start"
        self.since_ns = 0
        self.polls = False  # It polls: it goes on whenever something happened.
        self.parked = True  # It waits for a turn, or has ended.
        self.abandoned = False  # It kept its turn for too long: it takes no further part.
        self._programs = programs
        self._call = call
        self._go = threading.Lock()
        self._go.acquire()
        self._take: Callable[[], Any] = lambda: True
        self._taken: Any = None
        self._end_ns = _NEVER
        self._ending: BaseException | None = None
        self.idle_polls = 0
        self.tasks: Callable[[], list[Waiting]] | None = None  # Of its event loop, if it waits.
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)

    def start(self) -> None:
        """Starts the thread, which waits for its first turn."""
        self._thread.start()

    @property
    def started(self) -> bool:
        """True if the thread could be started."""
        return self._thread.ident is not None

    def _main(self) -> None:
        self._go.acquire()
        try:
            if self._ending is not None:
                raise self._ending
            self.result = self._call()
            demand_no_coroutine(self.name, self.result)
        except _Ended:
            pass
        except BaseException as error:
            self.error = error
        finally:
            self.finished = True
            self._programs.gave_back(self)

    def turn(self) -> None:
        """Lets the program go, until it waits or ends. Called by the scheduler."""
        self._programs.let_go(self, self._go)

    def end(self, error: BaseException | None = None) -> None:
        """Makes the program's wait raise."""
        self._ending = error if error is not None else _Ended()

    def is_ready(self) -> bool:
        """True if what it waits for is there, or will not come in time."""
        if self._ending is not None:
            return True
        if self.polls:
            return False
        try:
            self._taken = self._take()
        except Exception as error:  # Of the wait: it is for the program that waits.
            self.end(error)
            return True
        return self._taken is not None or self._programs.now_ns() >= self._end_ns

    @property
    def end_ns(self) -> int:
        """When its wait is over."""
        return self._end_ns

    def _hand_over(self) -> None:
        if self.abandoned:
            raise _Ended
        self._programs.gave_back(self)
        self._go.acquire()
        if self._ending is not None:
            ending, self._ending = self._ending, None
            raise ending

    def wait(self, take: Callable[[], E | None], end_ns: int, what: str, strict: bool) -> E:
        """As `Fabric.wait`, in the program's own thread; not `strict`: time-outs are no error."""
        taken = take()
        if taken is not None:
            return taken
        self._take, self._end_ns, self.waits_for = take, end_ns, what
        self.since_ns = self._programs.now_ns()
        self._hand_over()
        taken, self._taken, self._end_ns = self._taken, None, _NEVER
        if taken is None:
            if strict:
                raise TimeoutError(f"not within the time given: {what}")
            raise AssertionError(f"woken without {what}")
        return taken  # type: ignore[no-any-return]

    def polled_nothing(self) -> None:
        """A poll found nothing: the others go first, and time passes."""
        self.polls = True
        self.waits_for = "a completion, by polling"
        self.since_ns = self._programs.now_ns()
        try:
            self._hand_over()
        finally:
            self.polls = False


class Programs:
    """The programs of one fabric, and whose turn it is."""

    def __init__(self, fabric: VirtualTime) -> None:
        self._fabric = fabric
        self._programs: list[Program] = []
        self._by_thread: dict[int, Program] = {}
        self._back = threading.Lock()
        self._back.acquire()

    def current(self) -> Program | None:
        """The program that runs in this thread; None in the test itself."""
        if not self._by_thread:
            return None
        return self._by_thread.get(threading.get_ident())

    def now_ns(self) -> int:
        """Virtual time."""
        return self._fabric.now_ns

    def gave_back(self, program: Program) -> None:
        """A program waits or has ended: the scheduler goes on."""
        self._by_thread.pop(threading.get_ident(), None)
        program.parked = True
        with suppress(RuntimeError):  # The scheduler was interrupted, and has not been waiting.
            self._back.release()

    def let_go(self, program: Program, gate: threading.Lock) -> None:
        """Gives a program its turn, and waits until that is over."""
        ident = program._thread.ident
        assert ident is not None
        self._by_thread[ident] = program
        program.parked = False
        gate.release()
        while not program.parked:
            self._back.acquire()

    def run(self, calls: Sequence[Callable[[], Any]], names: Sequence[str]) -> list[Any]:
        """See `Fabric.run`."""
        if self._programs:
            raise FabricError("programs of this fabric are running already")
        for index, call in enumerate(calls):
            if not callable(call):
                raise TypeError(f"programs[{index}] must be callable, not {type(call).__name__}")
        for index, call in enumerate(calls):
            given = names[index] if index < len(names) else getattr(call, "__name__", "")
            self._programs.append(Program(self, call, given or f"program {index + 1}"))
        programs = self._programs
        try:
            for program in programs:
                program.start()
            self._schedule(programs)
            return [program.result for program in programs]
        except BaseException:
            self._end_all(programs)
            raise
        finally:
            self._programs = []

    def _schedule(self, programs: list[Program]) -> None:
        while live := [p for p in programs if not p.finished]:
            went = False
            self._fabric._run_callbacks()
            for program in live:
                if program.is_ready():
                    went = True
                    program.turn()
                    self._fabric._idle_polls = 0
                    if program.error is not None:
                        raise program.error
            if not went:
                self._let_time_pass(live)

    def _let_time_pass(self, live: list[Program]) -> None:
        end_ns = min(program.end_ns for program in live)
        pollers = [program for program in live if program.polls]
        if not pollers:
            stop = self._fabric._advance(end_ns)
            is_stuck = stop is FabricStop.QUIET and end_ns == _NEVER
            if is_stuck and not any(program.is_ready() for program in live):
                self._give_up(live)
            return
        try:
            self._fabric._let_poll_pass()
        except DeadlockError:
            self._give_up(live)
        for program in pollers:
            program.turn()
            if program.error is not None:
                raise program.error

    def _give_up(self, live: list[Program]) -> None:
        waiting: list[Waiting] = []
        for program in live:
            waiting.append((program.name, program.waits_for, program.since_ns))
            tasks = program.tasks() if program.tasks is not None else []
            waiting += [(f"its {who}", what, since_ns) for who, what, since_ns in tasks]
        raise DeadlockError(self._fabric._deadlock(waiting))

    def _end_all(self, programs: list[Program]) -> None:
        for program in programs:
            # The scheduler was interrupted: who has the turn comes to a wait soon, or never.
            deadline = time.monotonic() + _LONGEST_S
            while not program.parked and (left := deadline - time.monotonic()) > 0:
                self._back.acquire(timeout=left)
            program.abandoned = not program.parked
        for program in programs:
            while program.started and not program.finished and not program.abandoned:
                program.end()
                program.turn()
