"""What a work request carries so that its completion finds its way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from softhca import _adapter

if TYPE_CHECKING:
    from softhca.verbs.cq import CQ
    from softhca.verbs.wc import WC


class Cqe:
    """The callback of a work request (struct ib_cqe): `Read(..., cqe=my_cqe)`.

    Derive from it and write `done`; or, for a plain function, `Cqe(function)`. One `Cqe` may serve
    many work requests at once. It is kept alive, together with the buffers of the work request,
    until the completion has been delivered.
    """

    __slots__ = ("__dict__", "__weakref__")

    def __init__(self, done: Callable[[CQ, WC], object] | None = None) -> None:
        if done is not None:
            if not callable(done):
                raise TypeError(f"done must be callable, not {type(done).__name__}")
            self.done = done  # type: ignore[method-assign, assignment]

    def done(self, cq: CQ, wc: WC) -> None:
        """Called with each completion, of success or not, in the poll context of the queue.

        A send whose work request says `signaled=False` has none of success.

        It may post, destroy the queue pair, and free the queue. What it raises is reported by
        `sys.unraisablehook`, or by the queue's own hook, and costs other completions nothing.

        Args:
            cq: The queue.
            wc: The completion; `wc.cqe` is this object.
        """
        raise NotImplementedError(f"{type(self).__name__} has no done()")

    def forgotten(self) -> None:
        """Called when the work request will never complete: its queue pair was reset or destroyed.

        Unsignaled work requests that succeed end without either call. The adapter learns of their
        success from a later completion of the queue pair: those that had none yet are forgotten.
        """


def tell_forgotten(cqes: Iterable[Cqe]) -> None:
    """Calls `forgotten` of each; what one raises goes to `sys.unraisablehook`."""
    for cqe in cqes:
        try:
            cqe.forgotten()
        except BaseException as error:
            _adapter.report_unraisable(error, cqe.forgotten)
