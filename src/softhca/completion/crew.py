"""The threads that run callbacks of completion queues, by context and completion vector."""

from __future__ import annotations

import errno
import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from softhca import _adapter
from softhca.completion.poll_context import BUDGETS, MAX_THREADS, PollContext
from softhca.verbs.errors import VerbsError

if TYPE_CHECKING:
    from softhca.verbs.world import World

# How long closing a device waits for callbacks that are running.
LONGEST_WAIT_S = 2.0


def vector_count() -> int:
    """Completion vectors of a device: the processors that this process may use."""
    return len(os.sched_getaffinity(0))


class Crew:
    """Threads that share the work of some queues; none before the first callback queue.

    The native side (CompletionWork) says when one more thread is needed and when one is not needed
    any more, and polls; a thread comes into Python to run callbacks only.
    """

    def __init__(
        self,
        hca: _adapter.Hca,
        context: PollContext,
        name: str,
        queue_of: Callable[[int], Any],
        wc_class: type[_adapter.Completion],
        world: World | None,
    ) -> None:
        self._hca = hca
        self._world = world
        self._budget = BUDGETS[context]
        self._name = name
        self._queue_of = queue_of
        self._wc_class = wc_class
        self._adding = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._numbers = itertools.count()
        self._work, self.number = hca.create_work(MAX_THREADS[context])

    def add(self, cq: int) -> None:
        """Takes a queue on, which is armed next.

        Raises:
            VerbsError: EAGAIN, if the first thread cannot be started; the queue is not taken on.
        """
        # One after another: who finds the first thread claimed relies on it.
        with self._adding:
            self._work.add(cq)
            if not self._hca.is_simulated and self._work.claim_first_thread():
                try:
                    self._start_thread()
                except BaseException as error:
                    self._work.thread_failed()
                    self._work.remove(cq)
                    if not isinstance(error, RuntimeError):
                        raise
                    rule = f"needs a thread for {self._name}, and the system gives none"
                    raise VerbsError(errno.EAGAIN, "poll_context", None, rule) from error

    def remove(self, cq: int) -> None:
        """Lets a queue go; a callback of it may still be running."""
        self._work.remove(cq)

    def wait_for_others(self, cq: int) -> None:
        """Waits until no other thread runs a callback of a queue that was removed."""
        if self._world is None:
            self._work.wait_for_others(cq)
            return

        def is_given_back() -> bool | None:
            return self._work.is_given_back(cq) or None

        # Programs of a fabric go one at a time: who has it goes on while this one waits there.
        if self._work.begin_wait(cq):
            try:
                self._world.wait(is_given_back, None, f"callbacks of CQ {cq}")
            finally:
                self._work.end_wait(cq)

    def would_wait_for_caller(self, cq: int) -> bool:
        """True if the queue goes on only when the calling thread returns from a callback."""
        return self._work.would_wait_for_caller(cq)

    def _start_thread(self) -> None:
        thread = threading.Thread(
            target=self._run, name=f"{self._name}-{next(self._numbers)}", daemon=True
        )
        self._threads.add(thread)
        try:
            thread.start()
        except BaseException:
            self._threads.discard(thread)
            raise

    def _run(self) -> None:
        try:
            self._hca.serve(
                self._work, self._budget, self._queue_of, self._start_thread, self._wc_class
            )
        finally:
            self._threads.discard(threading.current_thread())

    def run_one(self) -> bool:
        """Runs callbacks of one queue in the calling thread, for devices without threads."""
        return self._hca.serve(
            self._work,
            self._budget,
            self._queue_of,
            self._start_thread,
            self._wc_class,
            once=True,
        )

    def stop(self) -> None:
        """Lets the threads go; those in a callback end after it."""
        self._work.stop()

    def join(self, deadline: float) -> None:
        """Waits until all threads but the calling one have ended, or `time.monotonic()` is late."""
        for thread in list(self._threads):
            if thread is not threading.current_thread():
                # One that another is just starting cannot be joined, and finds nothing to do.
                with suppress(RuntimeError):
                    thread.join(max(0.0, deadline - time.monotonic()))


_all_crews: weakref.WeakSet[Crews] = weakref.WeakSet()


def join_all() -> None:
    """Ends the threads of all devices, at the end of the program."""
    crews = [one for one in _all_crews if one.pid == os.getpid()]  # Not of a parent.
    for one in crews:
        one.stop()
    for one in crews:
        one.join()


class Crews:
    """All crews of a device."""

    def __init__(
        self,
        hca: _adapter.Hca,
        name: str,
        queue_of: Callable[[int], Any],
        wc_class: type[_adapter.Completion],
        world: World | None = None,
    ) -> None:
        """Makes no crew yet.

        Args:
            hca: The adapter.
            name: What names of threads begin with.
            queue_of: Finds a queue by its handle.
            wc_class: What completions are made of.
            world: Of a simulated device: the fabric it is in.
        """
        self._hca = hca
        self._world = world
        self._name = name
        self._queue_of = queue_of
        self._wc_class = wc_class
        self._crews: dict[tuple[PollContext, int], Crew] = {}
        self._lock = threading.Lock()
        self.pid = os.getpid()
        _all_crews.add(self)

    def of(self, context: PollContext, comp_vector: int) -> Crew:
        """Returns the crew that a queue belongs to, hiring it if it is the first."""
        vector = 0 if context is PollContext.UNBOUND_WORKQUEUE else comp_vector
        with self._lock:
            crew = self._crews.get((context, vector))
            if crew is None:
                name = f"{self._name}-{context.name.lower()}-{vector}"
                crew = Crew(self._hca, context, name, self._queue_of, self._wc_class, self._world)
                self._crews[context, vector] = crew
            return crew

    def run_ready(self) -> bool:
        """Runs what is ready, in the calling thread; True if there was anything."""
        ran = False
        for crew in list(self._crews.values()):
            ran |= crew.run_one()
        return ran

    def stop(self) -> None:
        """Lets all threads go."""
        for crew in list(self._crews.values()):
            crew.stop()

    def join(self) -> None:
        """Waits for callbacks that are running; one that does not return is left after a while."""
        deadline = time.monotonic() + LONGEST_WAIT_S
        for crew in list(self._crews.values()):
            crew.join(deadline)
