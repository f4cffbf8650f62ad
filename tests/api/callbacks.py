"""Queue pairs whose work completes at once, and callbacks that write down what they are told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import softhca as hca

# Where threads run callbacks.
THREADED = [
    hca.PollContext.SOFTIRQ,
    hca.PollContext.WORKQUEUE,
    hca.PollContext.UNBOUND_WORKQUEUE,
]
# Nothing here takes as long; it is there so that a hang is a failure.
PATIENCE_S = 30


# What tests make and name nowhere, until they have closed its device.
kept: list[object] = []


def no_connection(pd: hca.PD, cq: hca.CQ, **options: Any) -> hca.QP:
    """Returns a queue pair in ERR: what is posted completes at once, flushed, in order."""
    options.setdefault("max_send_wr", 16)
    options.setdefault("max_recv_wr", 16)
    qp = pd.create_qp(hca.QPType.RC, send_cq=cq, recv_cq=cq, **options)
    qp.modify(qp_state=hca.QPState.INIT, pkey_index=0, port_num=1, qp_access_flags=0)
    qp.modify(qp_state=hca.QPState.ERR)
    kept.extend((pd, qp))
    return qp


def to_itself(pd: hca.PD, cq: hca.CQ, **options: Any) -> tuple[hca.QP, hca.QP]:
    """Returns two queue pairs of one device, connected to each other."""
    options.setdefault("max_send_wr", 16)
    options.setdefault("max_recv_wr", 16)
    options = {"send_cq": cq, "recv_cq": cq, **options}
    near, far = (pd.create_qp(hca.QPType.RC, **options) for _ in range(2))
    near.connect(far.info())
    far.connect(near.info())
    kept.extend((pd, near, far))
    return near, far


class Told:
    """What callbacks were told, in order; they may come from any thread.

    Attributes:
        wr_ids: Of completions, in the order of their callbacks.
        overlaps: Callbacks that began while another of the same queue was running.
        threads: Where callbacks ran.
    """

    def __init__(self) -> None:
        self.wr_ids: list[int] = []
        self.forgotten = 0
        self.overlaps = 0
        self.threads: set[int] = set()
        self._inside: set[int] = set()
        self._changed = threading.Condition()

    @contextmanager
    def note(self, cq: hca.CQ, wr_id: int) -> Iterator[None]:
        """Around what a callback does."""
        with self._changed:
            self.overlaps += cq.handle in self._inside
            self._inside.add(cq.handle)
            self.threads.add(threading.get_ident())
        try:
            yield
        finally:
            with self._changed:
                self._inside.discard(cq.handle)
                self.wr_ids.append(wr_id)
                self._changed.notify_all()

    def note_forgotten(self) -> None:
        """In a callback that is told that nothing will come."""
        with self._changed:
            self.forgotten += 1
            self._changed.notify_all()

    def wait(self, count: int) -> None:
        """Waits until so many callbacks have run."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.wr_ids) >= count, PATIENCE_S), (
                f"{len(self.wr_ids)} of {count} callbacks"
            )


class Note(hca.Cqe):
    """Writes its completions down, and does something besides."""

    def __init__(self, told: Told, then: Callable[[hca.CQ, hca.WC], object] | None = None) -> None:
        super().__init__()
        self.told = told
        self.then = then

    def done(self, cq: hca.CQ, wc: hca.WC) -> None:
        with self.told.note(cq, wc.wr_id):
            if self.then is not None:
                self.then(cq, wc)

    def forgotten(self) -> None:
        self.told.note_forgotten()


def passes(event: threading.Event) -> bool:
    """Waits for an event, but not for ever."""
    return event.wait(PATIENCE_S)
