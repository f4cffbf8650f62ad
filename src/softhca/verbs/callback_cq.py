"""Completion queues that the core polls, and that call back."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from softhca.completion.awaiting import Dispatcher
from softhca.completion.crew import Crew
from softhca.completion.poll_context import PollContext
from softhca.verbs.checks import unsigned
from softhca.verbs.cq import CQ
from softhca.verbs.enums import NotifyFlags
from softhca.verbs.errors import VerbsError
from softhca.verbs.records import CompletionBuffer
from softhca.verbs.wc import WC

if TYPE_CHECKING:
    from softhca.verbs.device import Device
    from softhca.verbs.records import Records

# Told of an exception, the completion, and the work request, which is None if it had no callback.
ExceptionHook = Callable[[BaseException, WC, Any], object]

_UNBOUNDED = (1 << 64) - 1


def poll_context_of(context: PollContext) -> PollContext:
    """Returns the context of a number; EINVAL if it is none."""
    try:
        return PollContext(context)
    except ValueError:
        rule = "must be a PollContext"
        raise VerbsError(errno.EINVAL, "poll_context", context, rule) from None


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

    __slots__ = (
        "_crew",
        "_processing",
        "_processing_thread",
        "_shared",
        "on_exception",
        "poll_context",
        "private",
    )

    def __init__(
        self,
        device: Device,
        nr_cqe: int,
        *,
        comp_vector: int = 0,
        poll_context: PollContext = PollContext.SOFTIRQ,
        private: object = None,
        on_exception: ExceptionHook | None = None,
        shared: bool = False,
    ) -> None:
        self.poll_context: PollContext = poll_context_of(poll_context)
        if on_exception is not None and not callable(on_exception):
            raise TypeError(f"on_exception must be callable, not {type(on_exception).__name__}")
        self.private: object = private
        self.on_exception: ExceptionHook | None = on_exception
        self._processing = threading.Lock()
        self._processing_thread = 0  # Who holds it.
        self._shared = shared  # Of a pool, which alone frees it.
        self._crew: Crew | None = None
        count = unsigned("nr_cqe", nr_cqe, 32)
        try:
            super().__init__(device, count, comp_vector=comp_vector, shared=shared)
        except VerbsError as error:
            if error.argument != "cqe":
                raise
            raise VerbsError(errno.EINVAL, "nr_cqe", count, error.rule) from None
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

        It waits for a callback in another thread, unless that callback waits in here itself for the
        queue whose callback this is: two callbacks that free each other's queues both go on.

        Raises:
            VerbsError: EBUSY, while queue pairs or SRQs complete here; if it is of a pool; or while
                another thread is in `process_direct`.
        """
        if self._shared:
            rule = "is of the device's pool: give it back with cq_pool_put()"
            raise VerbsError(errno.EBUSY, self.kind, None, rule)
        self._close_and_wait(super().close)

    def _close_and_wait(self, close: Callable[[], None]) -> None:
        # None begins to process it any more, and who does so is the caller.
        processing = self._processing.acquire(blocking=False)
        try:
            if not processing and not self._is_of_this_thread() and not self._inherited():
                raise VerbsError(errno.EBUSY, self.kind, None, "is in process_direct()")
            close()
        finally:
            if processing:
                self._processing.release()
        if self._crew is not None and not self._inherited():
            self._crew.wait_for_others(self._handle)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes what completes here, and then the queue, as `close` does."""
        if self._shared:
            return
        self._close_and_wait(self._close_with_children)

    @property
    def _is_owned(self) -> bool:
        return self._shared

    def _leave_pool(self) -> None:
        """Closes a queue of a pool, for the device that closes."""
        self._shared = False
        with suppress(VerbsError):  # Something that went astray uses it: it goes with the adapter.
            self._close_now()
        if not self._closed:
            self._forget()

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
        handled = self._try_process(limit)
        if handled is None:
            raise VerbsError(errno.EBUSY, self.kind, None, "callbacks of it are running")
        return handled

    def _try_process(self, limit: int) -> int | None:
        """Processes a DIRECT queue; None, at once, if callbacks of it are running already."""
        if not self._processing.acquire(blocking=False):
            return None
        self._processing_thread = threading.get_ident()
        try:
            return self._hca.process_cq(self._handle, limit, self, WC)
        finally:
            self._processing_thread = 0
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

    def poll_one(self) -> WC | None:
        """Refused: completions go to callbacks."""
        self._refuse("poll_one()")

    def poll_into(self, buffer: CompletionBuffer | Records) -> int:
        """Refused: completions go to callbacks."""
        self._refuse("poll_into()")

    def req_notify(self, flags: int = NotifyFlags.NEXT_COMP) -> int:
        """Refused: the poll context arms the queue."""
        self._refuse("req_notify()")

    def _tasks(self) -> Dispatcher | None:
        return None

    def resize(self, cqe: int) -> None:
        """Changes how many completions fit; refused for a queue of a pool, which counts on them."""
        if self._shared:
            raise VerbsError(errno.EINVAL, self.kind, None, "is of the device's pool, of one size")
        super().resize(cqe)

    def _with_callbacks(self) -> CallbackCQ:
        return self

    def _is_of_this_thread(self) -> bool:
        """True if callbacks can go on only when the calling thread returns from one."""
        if self._crew is not None:
            return self._crew.would_wait_for_caller(self._handle)
        return self._processing_thread == threading.get_ident()

    def _polls_itself(self) -> bool:
        return self._crew is not None and not self._hca.is_simulated

    def _process_once(self) -> bool:
        """Runs callbacks here, for a queue that no thread polls; False if it had none."""
        if self._crew is not None:
            return self._crew.run_one()
        return bool(self._try_process(_UNBOUNDED))

    def _is_processed(self) -> bool:
        """True while somebody is in `process_direct`."""
        return self._processing.locked()

    def _has_overflowed(self) -> bool:
        return self._hca.cq_overflowed(self._handle)

    def __repr__(self) -> str:
        return f"<CQ {self._handle} {self.poll_context.name}>"


def process_cq_direct(cq: CallbackCQ, budget: int = -1) -> int:
    """Polls a DIRECT queue and calls back; as `cq.process_direct(budget)`."""
    if not isinstance(cq, CallbackCQ):
        raise TypeError(f"cq must come from alloc_cq(), not be a {type(cq).__name__}")
    return cq.process_direct(budget)
