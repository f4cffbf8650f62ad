"""Completion queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from softhca.verbs.acknowledgement import Acknowledgement
from softhca.verbs.checks import unsigned
from softhca.verbs.enums import NotifyFlags
from softhca.verbs.lifetime import VerbsObject
from softhca.verbs.wc import WC

if TYPE_CHECKING:
    from softhca.verbs.device import Device


class CQ(VerbsObject):
    """A completion queue (struct ibv_cq). `device.create_cq()` makes it."""

    __slots__ = ("_async_acks", "_completion_acks", "_handle", "device")

    kind = "cq"

    def __init__(self, device: Device, cqe: int) -> None:
        hca = device._hca
        self._async_acks = Acknowledgement()
        self._completion_acks = Acknowledgement()
        self._handle: int = hca.create_cq(unsigned("cqe", cqe, 32))
        self.device = device
        super().__init__(hca, device)
        device._cqs[self._handle] = self

    @property
    def handle(self) -> int:
        """Number of the queue within its device."""
        return self._handle

    def _await_acknowledgement(self) -> None:
        self._async_acks.wait_until_none(self.kind)
        self._completion_acks.wait_until_none(self.kind)

    def _destroy(self) -> None:
        self._hca.destroy_cq(self._handle)
        self.device._cqs.pop(self._handle, None)

    @property
    def cqe(self) -> int:
        """Completions that fit; one more is an overflow, which stops every queue pair of the CQ."""
        return self._hca.cq_capacity(self._handle)

    def poll(self, max_entries: int = 16) -> list[WC]:
        """Takes up to `max_entries` completions, the oldest first; an empty list if there are none.

        A poll that finds nothing makes progress first: it fetches packets and sends answers.

        Raises:
            VerbsError: EINVAL, if `max_entries` is negative or beyond 64 bits.
        """
        try:
            return self._hca.poll_cq(self._handle, max_entries, WC)
        except TypeError:
            unsigned("max_entries", max_entries, 64)  # Refuses by name.
            raise

    def req_notify(self, flags: int = NotifyFlags.NEXT_COMP) -> int:
        """Arms the queue for one event at the next completion that is added (ib_req_notify_cq).

        Args:
            flags: NEXT_COMP or SOLICITED, with REPORT_MISSED_EVENTS if wanted.

        Returns:
            1 with REPORT_MISSED_EVENTS if completions wait already: poll again. 0 otherwise.

        Raises:
            VerbsError: EINVAL, if the flags are neither.
        """
        return self._hca.req_notify_cq(self._handle, unsigned("flags", flags, 32))

    def resize(self, cqe: int) -> None:
        """Changes how many completions fit; those that wait stay, in order.

        Raises:
            VerbsError: EINVAL, if `cqe` is below what waits or above max_cqe.
        """
        self._hca.resize_cq(self._handle, unsigned("cqe", cqe, 32))

    def __repr__(self) -> str:
        return f"<CQ {self._handle}>"
