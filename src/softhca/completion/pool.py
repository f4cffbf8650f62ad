"""The completion queues that users of a device share (ib_cq_pool_get), by poll context."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from softhca.completion.poll_context import PollContext
from softhca.verbs.errors import VerbsError

if TYPE_CHECKING:
    from softhca.verbs.callback_cq import CallbackCQ

# Completions of a shared queue, unless more are asked for at once (IB_MAX_SHARED_CQ_SZ).
SHARED_CQE = 4096


class _Member:
    """A shared queue, and how many of its completions are promised to users."""

    __slots__ = ("capacity", "cq", "used")

    def __init__(self, cq: CallbackCQ, capacity: int) -> None:
        self.cq = cq
        self.capacity = capacity
        self.used = 0


class CQPool:
    """Shared queues of one device. Thread-safe.

    Queues are made when nothing has room, and stay until the device is closed.
    """

    def __init__(self, vectors: int) -> None:
        """Makes an empty pool.

        Args:
            vectors: Completion vectors to spread over.
        """
        self._vectors = vectors
        self._lock = threading.Lock()
        self._members: dict[PollContext, list[_Member]] = {}
        self._next_vector = 0

    def get(
        self,
        nr_cqe: int,
        comp_vector_hint: int,
        poll_context: PollContext,
        max_cqe: int,
        allocate: Callable[[int, int, PollContext], CallbackCQ],
    ) -> CallbackCQ:
        """Returns a queue with room for `nr_cqe` more completions, which are the caller's now.

        Args:
            nr_cqe: Completions.
            comp_vector_hint: The vector; below 0 any.
            poll_context: Where callbacks run.
            max_cqe: Completions of the largest queue.
            allocate: Makes a shared queue of so many completions, on a vector, in a context. It is
                the device's own method, and kept here it would keep the device.
        """
        with self._lock:
            members = self._members.setdefault(poll_context, [])
            vector = self._vector(members, comp_vector_hint)
            fitting = [
                member
                for member in members
                if member.cq.comp_vector == vector and member.used + nr_cqe <= member.capacity
            ]
            if fitting:
                member = min(fitting, key=lambda one: one.used)
            else:
                capacity = min(max_cqe, max(nr_cqe, SHARED_CQE))
                member = _Member(allocate(capacity, vector, poll_context), capacity)
                members.append(member)
            if comp_vector_hint < 0:
                self._next_vector = (vector + 1) % self._vectors
            member.used += nr_cqe
            return member.cq

    def _vector(self, members: list[_Member], hint: int) -> int:
        """The vector that was asked for, or the one with the least load; of equals the next."""
        if hint >= 0:
            return hint % self._vectors
        load = [0] * self._vectors
        for member in members:
            load[member.cq.comp_vector] += member.used
        in_turn = [(self._next_vector + step) % self._vectors for step in range(self._vectors)]
        return min(in_turn, key=lambda vector: load[vector])

    def put(self, cq: CallbackCQ, nr_cqe: int) -> None:
        """Takes promised completions back."""
        with self._lock:
            members = self._members.get(cq.poll_context, [])
            member = next((one for one in members if one.cq is cq), None)
            if member is None:
                raise VerbsError(errno.EINVAL, "cq", None, "is not of the device's pool")
            if nr_cqe > member.used:
                rule = f"must be at most {member.used}, what is taken of the queue"
                raise VerbsError(errno.EINVAL, "nr_cqe", nr_cqe, rule)
            member.used -= nr_cqe

    def take_all(self) -> list[CallbackCQ]:
        """Empties the pool and returns its queues, for the device that closes."""
        with self._lock:
            queues = [one.cq for members in self._members.values() for one in members]
            self._members.clear()
            return queues
