"""Completions for tasks: each goes to whoever awaits its work request, or to `cq.next()`.

A queue that is awaited has one pump per event loop. It polls while completions come and a little
longer, since polling is faster than waking up, then arms the queue and sleeps on a descriptor. All
tasks that wait for the queue share the pump: a thousand of them cost one event.
"""

from __future__ import annotations

import errno
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from softhca.completion.cqe import Cqe
from softhca.completion.waiters import (
    AsyncioWaiter,
    TrioWaiter,
    Waiter,
    demand_time,
    goes_on,
    running_loop,
    trio_here,
)
from softhca.verbs.errors import VerbsError

if TYPE_CHECKING:
    from softhca.verbs.cq import CQ
    from softhca.verbs.wc import WC

# How long a pump goes on polling after the last completion, at most and at least. A round trip on
# one machine is shorter than waking up a thread, if the peer is not waiting for a processor.
MOST_SPIN_NS = 100_000
LEAST_SPIN_NS = 2_000
# How long one poll looks for a completion, without the GIL, before the loop has its turn.
_PATIENCE_NS = 20_000
# How often tasks may poll by themselves until the loop has its turn.
_POLLS_PER_TURN = 8
_BATCH = 64
_CLOSED = "was closed while it was awaited"
_NEXT_COMP_OR_MISSED = 2 | 4


class Awaited(Cqe):
    """The callback of a work request that a task awaits."""

    __slots__ = ("_dispatcher", "_waiter")

    def __init__(self, dispatcher: Dispatcher | None, waiter: Waiter) -> None:
        self._dispatcher = dispatcher
        self._waiter: Waiter | None = waiter

    def done(self, cq: CQ, wc: WC) -> None:
        """Wakes the task, which may have been cancelled: the completion then ends here."""
        if (waiter := self.take_waiter()) is not None:
            waiter.give(wc)

    def forgotten(self) -> None:
        """Wakes the task of a work request that will never complete."""
        rule = "was reset or destroyed before the work request completed"
        if (waiter := self.take_waiter()) is not None:
            waiter.fail(VerbsError(errno.ECANCELED, "qp", None, rule))

    def take_waiter(self) -> Waiter | None:
        """Who waits; let go of, since he keeps the completion, which keeps its callback."""
        if self._dispatcher is not None:
            self._dispatcher.outstanding.pop(self, None)
        waiter, self._waiter = self._waiter, None
        return waiter


class Dispatcher:
    """Hands the completions of one queue to tasks.

    Attributes:
        outstanding: Awaited work requests under way; cancelled ones too, for somebody must take
            their completions.
    """

    def __init__(self, cq: CQ) -> None:
        self._cq = cq
        self._hca = cq._hca
        # In the order of posting, which is that of telling them when the queue goes.
        self.outstanding: dict[Awaited, None] = {}
        self.is_simulated = self._hca.is_simulated
        self._unclaimed: deque[WC] = deque()
        self._takers: deque[Waiter] = deque()
        self._pump: _AsyncioPump | _TrioPump | None = None
        self._channel, self._number = self._hca.create_channel()

    @property
    def fd(self) -> int:
        """Readable when the queue that was armed got a completion."""
        return self._channel.fd

    @property
    def wanted(self) -> bool:
        """True if somebody waits."""
        return bool(self.outstanding or self._takers)

    def waiter(self) -> Waiter:
        """What the running task can wait on; its loop pumps from now on.

        Raises:
            VerbsError: EBUSY, while tasks of another loop that runs wait for the queue; EDEADLK,
                in a loop in which no time of the simulated device passes.
        """
        demand_time(self._cq.device._world)
        trio = trio_here()
        pump = self._pump
        if trio is None:
            loop = running_loop()
            if not isinstance(pump, _AsyncioPump) or pump.loop is not loop:
                self._let_go_of(pump)
                self._pump = _AsyncioPump(self)
            return AsyncioWaiter(loop)
        if not isinstance(pump, _TrioPump) or pump.token is not trio.lowlevel.current_trio_token():
            self._let_go_of(pump)
            self._pump = _TrioPump(self, trio)
        return TrioWaiter(trio)

    def _let_go_of(self, pump: _AsyncioPump | _TrioPump | None) -> None:
        if pump is None:
            return
        if self.wanted and pump.is_running:
            raise VerbsError(errno.EBUSY, "cq", None, "is awaited in another event loop")
        pump.stop()
        if self.wanted and isinstance(pump, _AsyncioPump):
            pump.call_if_it_goes_on(self._go_on)

    def _go_on(self) -> None:
        """A loop runs again that was stopped under tasks, and that another has taken turns with."""
        pump = self._pump
        if not self.wanted or (pump is not None and pump.is_running):
            return
        self._let_go_of(pump)
        self._pump = _AsyncioPump(self)
        self._pump.start()

    def poll_here(self, waiter: Waiter) -> bool:
        """Polls in the running task, where that delays nobody; True if what it awaits is there."""
        pump = self._pump
        if isinstance(pump, _AsyncioPump) and not waiter.is_over():
            try:
                pump.poll_here(waiter)
            except VerbsError as error:
                self.give_up(error)
        return waiter.is_over()

    def start(self) -> None:
        """Somebody waits: the pump polls."""
        if self._pump is not None:
            self._pump.start()

    async def next(self) -> WC:
        """The oldest completion that belongs to no awaited work request."""
        if self._unclaimed:
            return self._unclaimed.popleft()
        waiter = self.waiter()
        self._takers.append(waiter)
        self.start()
        try:
            taken: WC = await waiter.wait()
        except BaseException:
            if waiter in self._takers:
                self._takers.remove(waiter)
            elif (given := waiter.take_back()) is not None:
                self._unclaimed.appendleft(given)
                if self._takers:
                    self._hand_to_taker(self._unclaimed.popleft())
            raise
        return taken

    def step(self) -> int:
        """Polls once and hands out; returns how many completions there were."""
        cq = self._cq
        # In a simulation time passes while the loop sleeps, not while it polls.
        progress = not self.is_simulated
        wcs = self._hca.poll_cq(cq._handle, _BATCH, cq._wc_class, _PATIENCE_NS, progress, True)
        for wc in wcs:
            cqe = wc.cqe
            if type(cqe) is Awaited:
                cqe.done(cq, wc)
            else:
                self._hand_to_taker(wc)
        return len(wcs)

    def _hand_to_taker(self, wc: WC) -> None:
        while self._takers:
            # One that was cancelled a moment ago takes nothing.
            if self._next_taker().give(wc):
                return
        self._unclaimed.append(wc)

    def _next_taker(self) -> Waiter:
        """The first, but those of a loop that was stopped last: nobody knows when it goes on."""
        for at, waiter in enumerate(self._takers):
            if waiter.can_run():
                del self._takers[at]
                return waiter
        return self._takers.popleft()

    def give_up(self, error: VerbsError) -> None:
        """Tells whoever waits that the queue cannot be polled any more."""
        if self._pump is not None:
            self._pump.stop()
            self._pump = None
        waiters = [*self._takers, *(awaited.take_waiter() for awaited in [*self.outstanding])]
        self._takers.clear()
        number, value, rule = error.errno or errno.EIO, error.value, error.rule
        if (number, error.argument) == (errno.EINVAL, "cq"):
            # Another thread closes it, and has not come to `close()` yet.
            number, value, rule = errno.ECANCELED, None, _CLOSED
        for waiter in filter(None, waiters):  # An exception of his own for each.
            waiter.fail(VerbsError(number, error.argument, value, rule))

    def arm(self) -> bool:
        """Arms the queue for the pump's descriptor; False if completions wait already."""
        self._hca.attach_cq(self._cq._handle, self._number)
        self._cq._attached = self._number
        return self._hca.req_notify_cq(self._cq._handle, _NEXT_COMP_OR_MISSED) == 0

    def clear(self) -> None:
        """Takes the event that woke the pump."""
        while self._channel.pop():
            pass

    @property
    def has_unclaimed(self) -> bool:
        """True if completions were polled for tasks that none has taken, nor has a poll."""
        return bool(self._unclaimed)

    def take_unclaimed(self, most: int) -> list[WC]:
        """Completions that were polled for tasks and that none took."""
        taken: list[WC] = []
        while len(taken) < most:
            try:
                taken.append(self._unclaimed.popleft())
            except IndexError:  # Of several threads each takes what it gets.
                break
        return taken

    def close(self) -> None:
        """The queue is closed: whoever waits for its next completion hears of it."""
        if self._pump is not None:
            self._pump.stop()
            self._pump = None
        while self._takers:
            self._takers.popleft().fail(VerbsError(errno.ECANCELED, "cq", None, _CLOSED))
        self._hca.remove_sink(self._number)
        self._channel.close()


class _Patience:
    """How long polling is worth while: longer where it paid, shorter where it did not."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._simulated = dispatcher.is_simulated
        self._spin_ns = MOST_SPIN_NS
        self._since_ns = 0

    def begin(self) -> None:
        """Something happened: a post, or a completion that woke the pump."""
        self._since_ns = time.monotonic_ns()

    def paid(self) -> None:
        """A completion came while the pump polled."""
        self._since_ns = time.monotonic_ns()
        self._spin_ns = min(2 * self._spin_ns, MOST_SPIN_NS)

    def is_over(self) -> bool:
        """True if the pump had better sleep; in a simulation, where it alone makes time pass."""
        if self._simulated:
            return True
        if time.monotonic_ns() - self._since_ns < self._spin_ns:
            return False
        self._spin_ns = max(self._spin_ns // 2, LEAST_SPIN_NS)
        return True


class _AsyncioPump:
    """Polls in callbacks of an asyncio loop."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.loop = running_loop()
        self._dispatcher = dispatcher
        self._scheduled = False
        self._stopped = False
        self._patience = _Patience(dispatcher)
        # Callbacks that are due; a loop of another make keeps them to itself.
        self._due: deque[Any] | None = getattr(self.loop, "_ready", None)
        self._polls_left = _POLLS_PER_TURN
        self.loop.add_reader(dispatcher.fd, self._wake)

    @property
    def is_running(self) -> bool:
        return self.loop.is_running()

    def start(self) -> None:
        self._patience.begin()
        self._schedule()

    def stop(self) -> None:
        self._stopped = True
        if not self.loop.is_closed():
            self.loop.remove_reader(self._dispatcher.fd)

    def call_if_it_goes_on(self, call: Callable[[], None]) -> None:
        """Has a loop that was stopped call this, should it ever run again."""
        with suppress(RuntimeError):  # It is closed.
            self.loop.call_soon_threadsafe(call)

    def poll_here(self, waiter: Waiter) -> None:
        """Polls without a turn of the loop, as long as nothing else is due there."""
        while self._polls_left and not self._due and self._due is not None and not self._scheduled:
            self._polls_left -= 1
            self._dispatcher.step()
            if waiter.is_over():
                break

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._run)

    def _wake(self) -> None:
        self._dispatcher.clear()
        self.start()

    def _run(self) -> None:
        self._scheduled = False
        self._polls_left = _POLLS_PER_TURN
        dispatcher = self._dispatcher
        if self._stopped:
            return
        try:
            count = dispatcher.step()
            if not dispatcher.wanted:
                return
            if count:
                self._patience.paid()
            elif self._patience.is_over() and dispatcher.arm():
                return
            self._schedule()
        except VerbsError as error:
            dispatcher.give_up(error)


class _TrioPump:
    """Polls in a system task of trio, which lives while somebody waits."""

    def __init__(self, dispatcher: Dispatcher, trio: Any) -> None:
        self._dispatcher = dispatcher
        self._trio = trio
        self.token = trio.lowlevel.current_trio_token()
        self._running = False
        self._stopped = False

    @property
    def is_running(self) -> bool:
        # Of a run that broke off nobody tells the task, until both are collected.
        return self._running and goes_on(self.token)

    def start(self) -> None:
        if not self._running:
            self._running = True
            self._trio.lowlevel.spawn_system_task(self._run)

    def stop(self) -> None:
        self._stopped = True

    async def _run(self) -> None:
        dispatcher = self._dispatcher
        patience = _Patience(dispatcher)
        patience.begin()
        try:
            while not self._stopped:
                count = dispatcher.step()
                if not dispatcher.wanted:
                    break
                if count:
                    patience.paid()
                elif patience.is_over() and dispatcher.arm():
                    await self._trio.lowlevel.wait_readable(dispatcher.fd)
                    if self._stopped:  # What came is for another loop.
                        break
                    dispatcher.clear()
                    patience.begin()
                    continue
                await self._trio.lowlevel.checkpoint()
        except VerbsError as error:
            dispatcher.give_up(error)
        finally:
            self._running = False


def post_and_wait(
    cq: CQ, make: Callable[[Cqe], Any], post: Callable[[Any], None]
) -> Coroutine[Any, Any, WC]:
    """Posts a work request at once, and returns what waits for its completion.

    A task that is cancelled leaves the work request where it is: its buffers are kept until the
    completion came.

    Args:
        cq: Where it will complete.
        make: Makes the work request of a callback.
        post: Posts it.
    """
    dispatcher = cq._tasks()
    if dispatcher is None:
        # A queue with callbacks of its own: it calls, in its context.
        demand_time(cq.device._world)
        trio = trio_here()
        waiter: Waiter = AsyncioWaiter(running_loop()) if trio is None else TrioWaiter(trio)
        post(make(Awaited(None, waiter)))
        return _completion(waiter)
    waiter = dispatcher.waiter()
    awaited = Awaited(dispatcher, waiter)
    dispatcher.outstanding[awaited] = None
    try:
        post(make(awaited))
    except BaseException:
        dispatcher.outstanding.pop(awaited, None)
        raise
    return _completion(waiter, dispatcher)


async def _completion(waiter: Waiter, dispatcher: Dispatcher | None = None) -> WC:
    if dispatcher is not None and not dispatcher.poll_here(waiter):
        dispatcher.start()
    wc: WC = await waiter.wait()
    return wc
