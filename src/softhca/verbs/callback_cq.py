"""Completion queues that the core polls, and that call back."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from softhca.completion.awaiting import Dispatcher
from softhca.completion.crew import Crew
from softhca.completion.poll_context import PollContext
from softhca.verbs.checks import unsigned
from softhca.verbs.cq import CQ
from softhca.verbs.enums import NotifyFlags
from softhca.verbs.errors import VerbsError
from softhca.verbs.wc import WC

if TYPE_CHECKING:
    from softhca.verbs.device import Device

# Told of an exception, the completion, and the work request, which is None if it had no callback.
ExceptionHook = Callable[[BaseException, WC, Any], object]

_UNBOUNDED = (1 << 64) - 1


class _Failed:
    """What `sys.unraisablehook` says that an exception was ignored in."""

    def __init__(self, cq: CQ, wc: WC, wr: object) -> None:
        self.cq = cq
        self.wc = wc
        self.wr = wr

    def __repr__(self) -> str:
        return f"completion callback {self.wc.cqe!r} of {self.wr!r} on {self.cq!r}"


class CallbackCQ(CQ):
    """A completion queue with callbacks. `device.alloc_cq()` makes it (ib_alloc_cq).

    Work requests that complete here carry a `Cqe`, whose `done(cq, wc)` is called in the poll
    context of the queue. Callbacks of one queue never run at the same time.

    Attributes:
        poll_context: Where callbacks run.
        private: What the program wants callbacks to find; nobody else looks at it.
        on_exception: Called with the exception, the completion and the work request when a callback
            raised; None leaves it to `sys.unraisablehook`.
    """

    __slots__ = ("_crew", "_processing", "_shared", "on_exception", "poll_context", "private")

    def __init__(
        self,
        device: Device,
        nr_cqe: int,
        *,
        comp_vector: int = 0,
        poll_context: PollContext = PollContext.SOFTIRQ,
        private: object = None,
        on_exception: ExceptionHook | None = None,
    ) -> None:
        try:
            self.poll_context = PollContext(poll_context)
        except ValueError:
            rule = "must be a PollContext"
            raise VerbsError(errno.EINVAL, "poll_context", poll_context, rule) from None
        if on_exception is not None and not callable(on_exception):
            raise TypeError(f"on_exception must be callable, not {type(on_exception).__name__}")
        self.private = private
        self.on_exception = on_exception
        self._processing = threading.Lock()
        self._shared = False  # Of a pool, which alone frees it.
        self._crew: Crew | None = None
        super().__init__(device, unsigned("nr_cqe", nr_cqe, 32), comp_vector=comp_vector)
        if self.poll_context is not PollContext.DIRECT:
            try:
                self._join_crew(device._crews().of(self.poll_context, self.comp_vector))
            except BaseException:
                self._close_now()
                raise

    def _join_crew(self, crew: Crew) -> None:
        crew.add(self._handle)
        self._crew = crew
        self._hca.attach_cq(self._handle, crew.number)
        self._hca.req_notify_cq(self._handle, NotifyFlags.NEXT_COMP)

    def _destroy(self) -> None:
        super()._destroy()
        if self._crew is not None:
            self._crew.remove(self._handle)

    def close(self) -> None:
        """Frees the queue: once it returns, no callback of it runs but the one that calls this.

        Raises:
            VerbsError: EBUSY, while queue pairs or SRQs complete here, or if it is of a pool.
        """
        if self._shared:
            rule = "is of the device's pool: give it back with cq_pool_put()"
            raise VerbsError(errno.EBUSY, self.kind, None, rule)
        super().close()
        if self._crew is not None and not self._inherited():
            self._crew.wait_for_others(self._handle)

    def free(self) -> None:
        """The same as `close` (ib_free_cq)."""
        self.close()

    def process_direct(self, budget: int = -1) -> int:
        """Polls and calls back in the calling thread (ib_process_cq_direct).

        Args:
            budget: Most completions to handle; -1 for all there are.

        Returns:
            How many were handled.

        Raises:
            VerbsError: EINVAL, if the queue is not DIRECT; EBUSY, if callbacks of it are running
                already, be it in this thread.
        """
        if self.poll_context is not PollContext.DIRECT:
            rule = f"is polled in {self.poll_context.name}, not by the caller"
            raise VerbsError(errno.EINVAL, self.kind, None, rule)
        limit = _UNBOUNDED if budget == -1 else unsigned("budget", budget, 64)
        if not self._processing.acquire(blocking=False):
            raise VerbsError(errno.EBUSY, self.kind, None, "callbacks of it are running")
        try:
            return self._hca.process_cq(self._handle, limit, self, WC)
        finally:
            self._processing.release()

    def _callback_failed(self, error: BaseException, wc: WC, wr: object) -> object:
        """Says what is to be done about it; see native/bindings/callbacks.cpp."""
        if self.poll_context is PollContext.DIRECT and not isinstance(error, Exception):
            return error  # KeyboardInterrupt and the like are for the caller.
        if self.on_exception is not None:
            self.on_exception(error, wc, wr)
            return None
        return _Failed(self, wc, wr)

    def _without_cqe(self, wc: WC) -> NoReturn:
        raise VerbsError(errno.EINVAL, "cqe", None, f"is missing in what completed as {wc!r}")

    def _refuse(self, verb: str) -> NoReturn:
        how = (
            "process_direct() polls it"
            if self.poll_context is PollContext.DIRECT
            else "it polls and arms itself"
        )
        raise VerbsError(errno.EINVAL, self.kind, None, f"has callbacks, no {verb}: {how}")

    def poll(self, max_entries: int = 16) -> list[WC]:
        """Refused: completions go to callbacks."""
        self._refuse("poll()")

    def req_notify(self, flags: int = NotifyFlags.NEXT_COMP) -> int:
        """Refused: the poll context arms the queue."""
        self._refuse("req_notify()")

    def _tasks(self) -> Dispatcher | None:
        return None

    def __repr__(self) -> str:
        return f"<CQ {self._handle} {self.poll_context.name}>"


def process_cq_direct(cq: CallbackCQ, budget: int = -1) -> int:
    """Polls a DIRECT queue and calls back; as `cq.process_direct(budget)`."""
    if not isinstance(cq, CallbackCQ):
        raise TypeError(f"cq must come from alloc_cq(), not be a {type(cq).__name__}")
    return cq.process_direct(budget)
