"""Draining: waiting until every work request of a queue pair has had its callback.

After the kernel's ib_drain_sq, ib_drain_rq and ib_drain_qp: the queue pair goes to ERR, which
completes what is posted, and a marker is posted behind it. When the marker's callback runs, so have
those of everything before it.
"""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING

from softhca.completion.cqe import Cqe
from softhca.verbs.enums import QPState, QPType
from softhca.verbs.errors import VerbsError
from softhca.verbs.wr import Recv, Send

if TYPE_CHECKING:
    from softhca.verbs.callback_cq import CallbackCQ
    from softhca.verbs.cq import CQ
    from softhca.verbs.qp import QP
    from softhca.verbs.wc import WC

# How long the caller waits for another thread that has the queue before it looks again.
_LOOK_AGAIN_S = 0.01


class _Marker(Cqe):
    """The last work request of a queue."""

    __slots__ = ("is_gone", "reached")

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.is_gone = False

    def done(self, cq: CQ, wc: WC) -> None:
        self.reached.set()

    def forgotten(self) -> None:
        self.is_gone = True
        self.reached.set()


def _callback_queue(argument: str, cq: CQ | None) -> CallbackCQ:
    """The queue of a side, if this thread may wait for it."""
    if cq is None:
        raise VerbsError(errno.EINVAL, "qp", None, f"has no {argument}: nothing to drain there")
    queue = cq._with_callbacks()
    if queue is None:
        rule = "must come from alloc_cq(): modify() to ERR and poll() until nothing is left instead"
        raise VerbsError(errno.EINVAL, argument, None, rule)
    if queue._is_of_this_thread():
        rule = "is waited for in the thread that runs its callbacks, which could never end"
        raise VerbsError(errno.EDEADLK, argument, None, rule)
    return queue


def _demand_qp(qp: QP) -> None:
    if getattr(qp, "kind", None) != "qp":
        raise TypeError(f"qp must be QP, not {type(qp).__name__}")
    qp._demand_ours()


def _check_sq(qp: QP) -> CallbackCQ:
    _demand_qp(qp)
    return _callback_queue("send_cq", qp.send_cq)


def _check_rq(qp: QP) -> CallbackCQ:
    _demand_qp(qp)
    if qp.srq is not None:
        rule = "receives from a shared receive queue, which other queue pairs go on using"
        raise VerbsError(errno.EINVAL, "qp", None, rule)
    return _callback_queue("recv_cq", qp.recv_cq)


def _wait(argument: str, queue: CallbackCQ, marker: _Marker) -> None:
    if queue._has_overflowed():
        rule = "has overflowed: what completed since then is lost, and nobody can wait for it"
        raise VerbsError(errno.EIO, argument, None, rule)
    while not marker.reached.is_set():
        # A queue that threads poll needs nobody's help; the others are polled here.
        if queue._polls_itself():
            marker.reached.wait()
        elif not queue._process_once():
            _let_others_go_on(queue, marker)
    if marker.is_gone:
        rule = "was reset, destroyed or closed with its device while it was drained"
        raise VerbsError(errno.ECANCELED, "qp", None, rule)


def _finish_sq(qp: QP, queue: CallbackCQ) -> None:
    if qp.init_attr.cap.max_send_wr == 0:
        return
    marker = _Marker()
    qp._hca.post_send(qp._qpn, Send(signaled=True, cqe=marker))
    _wait("send_cq", queue, marker)


def _finish_rq(qp: QP, queue: CallbackCQ) -> None:
    if qp.init_attr.cap.max_recv_wr == 0:
        return
    marker = _Marker()
    qp.post_recv(Recv(cqe=marker))
    _wait("recv_cq", queue, marker)


def _let_others_go_on(queue: CallbackCQ, marker: _Marker) -> None:
    """Waits for whoever has the queue, and has it run a callback now."""
    world = queue.device._world
    if world is None:
        marker.reached.wait(_LOOK_AGAIN_S)
        return
    # Programs of a fabric go one at a time: he goes on when this one waits in the fabric's time.
    busy = queue._is_processed()

    def goes_on() -> bool | None:
        return True if marker.reached.is_set() or (busy and not queue._is_processed()) else None

    world.wait(goes_on, None, f"callbacks of {queue!r}")


def drain_sq(qp: QP) -> None:
    """Brings a queue pair to ERR and waits until all its sends have had their callbacks.

    A DIRECT queue is processed here, in the calling thread. Nobody else may post meanwhile, and the
    completion queue needs room for one completion more.

    Args:
        qp: The queue pair; its queue is one of `alloc_cq` or of the pool.

    Raises:
        VerbsError: EINVAL, if there is no send queue or its completion queue has no callbacks;
            EDEADLK, in the thread that runs those callbacks; nothing is changed then. ECANCELED,
            if the queue pair is reset or destroyed meanwhile; EIO, if the completion queue has
            overflowed.
        TypeError: If `qp` is something else.
    """
    queue = _check_sq(qp)
    qp.modify(qp_state=QPState.ERR)
    _finish_sq(qp, queue)


def drain_rq(qp: QP) -> None:
    """The same for receives.

    Args:
        qp: As for `drain_sq`.

    Raises:
        VerbsError: As `drain_sq`; EINVAL besides, for a queue pair that takes them from an SRQ.
    """
    queue = _check_rq(qp)
    qp.modify(qp_state=QPState.ERR)
    _finish_rq(qp, queue)


def drain_qp(qp: QP) -> None:
    """Both: first the sends, then the receives, unless they are of an SRQ, which is passed over.

    Of an XRC queue pair that only sends, the sends.

    Args:
        qp: As for `drain_sq`.

    Raises:
        VerbsError: As `drain_sq`.
    """
    _demand_qp(qp)
    receives = qp.srq is None and qp.type is not QPType.XRC_SEND
    sends = _check_sq(qp)
    receive_queue = _check_rq(qp) if receives else None
    qp.modify(qp_state=QPState.ERR)
    _finish_sq(qp, sends)
    if receive_queue is not None:
        _finish_rq(qp, receive_queue)
