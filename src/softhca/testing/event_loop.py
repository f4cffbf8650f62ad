"""Event loops whose clock is a fabric's: asyncio by its selector, trio by its clock."""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from softhca._adapter import FabricStop
from softhca.testing.errors import DeadlockError
from softhca.testing.stuck import awaited_by

if TYPE_CHECKING:
    from softhca.testing.virtual_time import VirtualTime

T = TypeVar("T")

# Turns of a loop in a row that have callbacks due, after which time passes all the same: a task
# that polls and yields would otherwise wait for ever.
_BUSY_TURNS = 64
_LONGEST_S = 1e9


class _Selector(selectors.DefaultSelector):
    """Descriptors that become readable in virtual time."""

    def __init__(self, fabric: VirtualTime) -> None:
        super().__init__()
        self._fabric = fabric
        self._order: dict[int, int] = {}
        self._registered = 0
        self._busy = 0

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = super().register(fileobj, events, data)
        self._registered += 1
        self._order[key.fd] = self._registered
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        key = super().unregister(fileobj)
        self._order.pop(key.fd, None)
        return key

    def _ready(self) -> list[tuple[selectors.SelectorKey, int]] | None:
        # In the order of registration: the kernel's is its own, and numbers differ between runs.
        ready = super().select(0)
        return sorted(ready, key=lambda one: self._order[one[0].fd]) or None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Waits in virtual time.

        Raises:
            DeadlockError: If nothing can come, and no timer is set.
        """
        if timeout is not None and timeout <= 0:
            self._busy += 1
            if self._busy >= _BUSY_TURNS:
                self._busy = 0
                self._fabric._polled_nothing()
            return self._ready() or []
        self._busy = 0
        if timeout is not None and timeout > _LONGEST_S:
            timeout = None
        since_ns = self._fabric.now_ns
        told = partial(_waiting_tasks, asyncio.get_running_loop(), since_ns)
        program = self._fabric._programs.current()
        if program is not None:
            program.tasks = told  # Who finds that nothing goes on is the scheduler.
        try:
            return self._fabric.wait(self._ready, timeout, "an event of the loop")
        except TimeoutError:
            return []
        except DeadlockError:
            waiting = [("the test", "an event of the loop", since_ns), *told()]
            raise DeadlockError(self._fabric._deadlock(waiting)) from None
        finally:
            if program is not None:
                program.tasks = None


def _waiting_tasks(loop: asyncio.AbstractEventLoop, since_ns: int) -> list[tuple[str, str, int]]:
    """The tasks of a loop, what each waits for, and since when."""
    tasks = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    awaited = [(task.get_name(), awaited_by(task.get_coro())) for task in tasks]
    return [(f"task {name}", what, since_ns) for name, what in awaited if what is not None]


class FabricEventLoop(asyncio.SelectorEventLoop):
    """An asyncio loop in the virtual time of a fabric."""

    def __init__(self, fabric: VirtualTime) -> None:
        super().__init__(_Selector(fabric))
        self._fabric = fabric
        self._clock_resolution = 1e-9

    def time(self) -> float:
        """Virtual time, in seconds."""
        return self._fabric.now_ns / 1e9


def run_asyncio(fabric: VirtualTime, main: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine and all its tasks; see `Fabric.run_async`."""
    with asyncio.Runner(loop_factory=lambda: FabricEventLoop(fabric)) as runner:
        loop = runner.get_loop()
        fabric.loops.add(loop)
        try:
            return runner.run(main)
        finally:
            fabric.loops.discard(loop)


def _waiting_trio_tasks(since_ns: int) -> list[tuple[str, str, int]]:
    """The same for trio, from within its run."""
    import trio

    found: list[tuple[str, str, int]] = []
    root = trio.lowlevel.current_root_task()
    left = [root] if root is not None else []
    while left:
        task = left.pop()
        left += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
        what = awaited_by(task.coro)
        if what is not None:
            found.append((f"task {task.name}", what, since_ns))
    return sorted(found)


class _TrioClock:
    """A clock of trio (trio.abc.Clock): time passes when no task has anything to do."""

    def __init__(self, fabric: VirtualTime) -> None:
        self._fabric = fabric
        self._looked = False  # At the descriptors, since time last passed.
        self.raised: BaseException | None = None  # While time passed.
        self.scope: Any = None

    def start_clock(self) -> None:
        """Nothing to start."""

    def current_time(self) -> float:
        """Virtual time, in seconds."""
        return self._fabric.now_ns / 1e9

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Lets time pass up to a deadline, unless a descriptor may be readable already."""
        left = deadline - self.current_time()
        if left <= 0 or not self._looked:
            self._looked = True
            return 0
        self._looked = False
        fabric = self._fabric
        since_ns = fabric.now_ns
        try:
            if math.isinf(deadline) or left > _LONGEST_S:
                if fabric._advance((1 << 64) - 1) is FabricStop.QUIET:
                    waiting = [("the loop", "events", since_ns), *_waiting_trio_tasks(since_ns)]
                    raise DeadlockError(fabric._deadlock(waiting))
            else:
                fabric._advance(fabric.now_ns + max(1, round(left * 1e9)))
        except BaseException as error:  # trio takes what a clock raises for a mistake of its own.
            self.raised = self.raised or error
            self.scope.cancel()
        return 0


def run_trio(fabric: VirtualTime, main: Callable[..., Awaitable[T]], *args: Any) -> T:
    """Runs an async function under trio; see `Fabric.run_trio`."""
    import trio

    clock = _TrioClock(fabric)
    trio.abc.Clock.register(_TrioClock)
    # Which of several tasks goes first is trio's own die.
    trio._core._run._r.seed(fabric.seed)

    async def guarded() -> T | None:
        token = trio.lowlevel.current_trio_token()
        fabric.loops.add(token)
        try:
            with trio.CancelScope() as clock.scope:
                return await main(*args)
        finally:
            fabric.loops.discard(token)
        return None

    result = trio.run(guarded, clock=cast("Any", clock))
    if clock.raised is not None:
        raise clock.raised
    return result  # type: ignore[return-value]
