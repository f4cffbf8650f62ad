"""Events that were taken and not acknowledged, which destroying their object waits for.

Sources: the manual pages ibv_get_async_event(3) and ibv_get_cq_event(3), and IBTA Vol 1, 11.6.3.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from typing import TYPE_CHECKING

from softhca.verbs.errors import VerbsError

if TYPE_CHECKING:
    from softhca.verbs.world import World

# How long destroying an object waits for other threads to acknowledge its events.
LONGEST_WAIT_S = 5.0

# The last thread that could acknowledge may end without a word: the wait looks this often.
_LOOK_AGAIN_S = 0.05

# One for all counters: waiting is rare, and a queue pair is made often. Reentrant, since the
# garbage collector may acknowledge what it collects while this thread is in here.
_changed = threading.Condition(threading.RLock())


def _on_fork() -> None:
    global _changed
    _changed = threading.Condition(threading.RLock())  # Who held the old one may not exist here.


os.register_at_fork(after_in_child=_on_fork)


class Acknowledgement:
    """Counts one object's events of one channel that were taken and not acknowledged.

    A CQ has two: one for its asynchronous events and one for its completion events. Thread-safe.
    """

    __slots__ = ("_is_over", "_outstanding")

    def __init__(self) -> None:
        self._outstanding = 0
        self._is_over = False

    @property
    def outstanding(self) -> int:
        """Events that were taken and not acknowledged."""
        return self._outstanding

    def taken(self, count: int = 1) -> bool:
        """Notes that events go to the program; False, and they must not, if their object goes."""
        with _changed:
            if self._is_over:
                return False
            self._outstanding += count
            return True

    def take_again(self) -> None:
        """The object stays, though the wait is over."""
        with _changed:
            self._is_over = False

    def acknowledge(self, count: int = 1) -> None:
        """Notes that the program is done with events.

        Raises:
            VerbsError: EINVAL, if more than were taken and not acknowledged; none is then.
        """
        with _changed:
            if not 0 <= count <= self._outstanding:
                rule = f"must be 0 to {self._outstanding}, the events not yet acknowledged"
                raise VerbsError(errno.EINVAL, "nevents", count, rule)
            self._outstanding -= count
            _changed.notify_all()

    def wait_until_none(self, kind: str, world: World | None = None) -> None:
        """Waits until every event that was taken is acknowledged. From then on none is taken.

        libibverbs waits for ever. This gives up at once where no other Python thread lives that
        could acknowledge, and after `LONGEST_WAIT_S` seconds otherwise.

        Args:
            kind: What the events are of, for the message.
            world: Of a simulated device: the fabric it is in, in whose time the seconds pass.

        Raises:
            VerbsError: EBUSY, if it gave up.
        """
        if world is not None and self._outstanding:
            self._wait_in(world, kind)
            return
        deadline = time.monotonic() + LONGEST_WAIT_S
        with _changed:
            while self._outstanding:
                left_s = deadline - time.monotonic()
                if threading.active_count() == 1 or left_s <= 0:
                    raise VerbsError(errno.EBUSY, kind, None, self._rule())
                _changed.wait(min(left_s, _LOOK_AGAIN_S))
            self._is_over = True

    def _wait_in(self, world: World, kind: str) -> None:
        def none_is_left() -> bool | None:
            with _changed:
                self._is_over = self._outstanding == 0
                return self._is_over or None

        # Programs of a fabric go one at a time: who waits otherwise waits for one that cannot go.
        try:
            world.wait(none_is_left, LONGEST_WAIT_S, f"events of {kind} to be acknowledged")
        except TimeoutError:
            raise VerbsError(errno.EBUSY, kind, None, self._rule()) from None

    def _rule(self) -> str:
        count = self._outstanding
        events, were = ("event", "was") if count == 1 else ("events", "were")
        return f"{count} {events} of it {were} never acknowledged"
