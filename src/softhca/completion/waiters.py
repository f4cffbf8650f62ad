"""What a task waits on, under asyncio and under trio."""

from __future__ import annotations

import errno
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from softhca.verbs.errors import VerbsError

if TYPE_CHECKING:
    import asyncio

    from softhca.verbs.world import World


class Waiter(Protocol):
    """A result that one task waits for; it may be given from any thread, and once."""

    def give(self, result: Any) -> bool:
        """Wakes the task with a result; False if it waits no more."""
        ...

    def fail(self, error: BaseException) -> bool:
        """Wakes the task with an exception; False if it waits no more."""
        ...

    def is_over(self) -> bool:
        """True if the result is there, or nobody waits for it any more."""
        ...

    def can_run(self) -> bool:
        """False if its task cannot, since somebody stopped its loop."""
        ...

    def wait(self) -> Awaitable[Any]:
        """The result."""
        ...

    def take_back(self) -> Any:
        """The result that a task which was cancelled did not see; None if there is none."""
        ...


class AsyncioWaiter:
    """A future of an asyncio loop."""

    __slots__ = ("_future", "_loop", "_thread")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._future: asyncio.Future[Any] = loop.create_future()
        self._thread = threading.get_ident()

    def give(self, result: Any) -> bool:
        """Sets the future's result."""
        future = self._future
        if threading.get_ident() != self._thread:
            return self._settle_later(future.set_result, result)
        # A future whose loop was closed under its task takes a result and then refuses to tell of
        # it: the task would find it when it is collected, and hand it on a second time.
        if future.done() or self._loop.is_closed():
            return False
        future.set_result(result)
        return True

    def fail(self, error: BaseException) -> bool:
        """Sets the future's exception."""
        future = self._future
        if threading.get_ident() != self._thread:
            return self._settle_later(future.set_exception, error)
        if future.done() or self._loop.is_closed():
            return False
        future.set_exception(error)
        return True

    def _settle_later(self, settle: Callable[[Any], None], value: Any) -> bool:
        def later() -> None:
            if not self._future.done():
                settle(value)

        try:
            self._loop.call_soon_threadsafe(later)
        except RuntimeError:  # The loop is closed.
            return False
        return not self._future.done()

    def is_over(self) -> bool:
        """True if the future is done."""
        return self._future.done()

    def can_run(self) -> bool:
        """True while the loop runs."""
        return self._loop.is_running()

    def wait(self) -> Awaitable[Any]:
        """The future itself."""
        return self._future

    def take_back(self) -> Any:
        """What the future has though its task was cancelled."""
        future = self._future
        # Asking for an exception first, which nobody else will retrieve.
        if not future.done() or future.cancelled() or future.exception() is not None:
            return None
        return future.result()


class TrioWaiter:
    """A result in a run of trio."""

    __slots__ = ("_error", "_event", "_result", "_token", "_trio", "_waits")

    def __init__(self, trio: Any) -> None:
        self._event = trio.Event()
        self._trio = trio
        self._token = trio.lowlevel.current_trio_token()
        self._result: Any = None
        self._error: BaseException | None = None
        self._waits = True

    def _wake(self) -> bool:
        if not self._runs_here():
            if not goes_on(self._token, self._event.set):
                # What it was given goes to somebody else, and is not the task's to hand on when
                # it is collected.
                self._result = None
                return False
            return self._waits
        self._event.set()
        return self._waits

    def _runs_here(self) -> bool:
        # The same thread is not enough: the run may have broken off, and another be in its place.
        try:
            return self._trio.lowlevel.current_trio_token() is self._token
        except RuntimeError:
            return False

    def give(self, result: Any) -> bool:
        """Sets the event, with a result."""
        self._result = result
        return self._wake()

    def fail(self, error: BaseException) -> bool:
        """Sets the event, with an exception."""
        self._error = error
        return self._wake()

    def is_over(self) -> bool:
        """True if the event is set."""
        return bool(self._event.is_set())

    def can_run(self) -> bool:
        """True: a run goes on to its end."""
        return True

    async def wait(self) -> Any:
        """The result, or raises the exception."""
        try:
            await self._event.wait()
        finally:
            self._waits = False
        if self._error is not None:
            raise self._error
        return self._result

    def take_back(self) -> Any:
        """What was given though the task was cancelled."""
        return self._result


def _nothing() -> None:
    """What a run is given to do that is only to be asked."""


def goes_on(token: Any, call: Callable[[], None] = _nothing) -> bool:
    """Hands a call to a run of trio, from any thread; False if it is over, or broke off."""
    try:
        token.run_sync_soon(call)
    except Exception:  # RunFinishedError, or what a run that broke off has left.
        return False
    return True


def trio_here() -> Any:
    """Returns the module trio in a task of trio, None in one of asyncio; raises elsewhere."""
    # Whoever is in a task of one of them has imported it.
    asyncio, trio = sys.modules.get("asyncio"), sys.modules.get("trio")
    if asyncio is not None:
        # Not get_running_loop(): trio can be a guest of a loop that runs. Another thread may be
        # importing it just now.
        with suppress(RuntimeError, AttributeError):
            if asyncio.current_task() is not None:
                return None
    if trio is not None:
        # Not in_trio_task(), which older versions have not.
        with suppress(RuntimeError):
            trio.lowlevel.current_task()
            return trio
    raise RuntimeError("must be awaited in a task of asyncio or trio")


def running_loop() -> asyncio.AbstractEventLoop:
    """The loop of the task of asyncio that calls.

    Whoever has one has imported asyncio, which takes long, and which most programs do without.
    """
    loop: asyncio.AbstractEventLoop = sys.modules["asyncio"].get_running_loop()
    return loop


def demand_time(world: World | None) -> None:
    """Refuses a wait for a simulated device where its time stands still.

    Args:
        world: The fabric of the device; None for a real one.

    Raises:
        VerbsError: EDEADLK, in an event loop that is not turned by the fabric.
    """
    if world is None:
        return
    trio = trio_here()
    loop = running_loop() if trio is None else trio.lowlevel.current_trio_token()
    if not world.passes_in(loop):
        rule = "lets no virtual time pass: use fabric.run_async() or fabric.run_trio()"
        raise VerbsError(errno.EDEADLK, "loop", None, rule)
