"""Faults of an adapter itself: verbs that are refused, ports that go down, devices that fail."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from softhca import _adapter
from softhca.completion.cqe import tell_forgotten
from softhca.testing.fault_match import numbers_of
from softhca.testing.trouble import fail_device, set_gid, set_port
from softhca.verbs.attributes import QPAttr
from softhca.verbs.checks import instance, unsigned
from softhca.verbs.cq import CQ
from softhca.verbs.device import Device
from softhca.verbs.enums import QPAttrMask, QPState
from softhca.verbs.errors import VerbsError, errno_name
from softhca.verbs.gid import GID, GIDLike
from softhca.verbs.qp import QP

if TYPE_CHECKING:
    from softhca.testing.fabric import Fabric

# Verbs by the names that programs know, and what the adapter calls them: each may have several
# entrances.
VERBS: dict[str, tuple[str, ...]] = {
    name: (name,)
    for name in (
        "alloc_pd",
        "dealloc_pd",
        "dereg_mr",
        "rereg_mr",
        "alloc_mr",
        "map_mr_sg",
        "alloc_mw",
        "dealloc_mw",
        "bind_mw",
        "create_cq",
        "destroy_cq",
        "resize_cq",
        "create_ah",
        "query_ah",
        "destroy_ah",
        "create_srq",
        "modify_srq",
        "query_srq",
        "destroy_srq",
        "create_qp",
        "modify_qp",
        "query_qp",
        "destroy_qp",
        "attach_mcast",
        "detach_mcast",
        "alloc_xrcd",
        "dealloc_xrcd",
        "alloc_dm",
        "free_dm",
        "memcpy_to_dm",
        "memcpy_from_dm",
        "reg_dm_mr",
    )
} | {
    "reg_mr": ("reg_mr", "reg_watched_mr"),
    "modify_cq": ("moderate_cq",),
    "post_send": ("post_send", "post_send_many"),
    "post_recv": ("post_recv", "post_recv_many"),
    "post_srq_recv": ("post_srq_recv", "post_srq_recv_many"),
    "poll_cq": ("poll_cq", "poll_one", "poll_into"),
    "req_notify": ("req_notify_cq",),
    "create_comp_channel": ("create_channel",),
    "create_invalidation_channel": ("open_invalidation_channel",),
}


def _first_wr(native: str, arguments: tuple[Any, ...]) -> Any:
    """What a refused call names as the work request that was refused; None if it posts none."""
    if not native.startswith("post_"):
        return None
    if native.endswith("_many"):
        return 0
    wrs = arguments[1]
    return next(iter(wrs), None) if isinstance(wrs, list | tuple) else wrs


def _take_to(qp: QP, state: QPState) -> None:
    """Not by the object's own method: a fault may refuse the verb, or count its calls."""
    native = QPAttr(qp_state=state).to_native(QPAttrMask.STATE)
    tell_forgotten(_adapter.Hca.modify_qp(qp.device.adapter, qp.qpn, native, int(QPAttrMask.STATE)))


class Refusal:
    """A verb that is refused at some of its calls.

    Attributes:
        verb: Which.
        calls: Calls until now, on the hosts it is about.
        struck: How many of them were refused.
    """

    def __init__(self, verb: str, number: int, nth: frozenset[int] | None) -> None:
        self.verb: str = verb
        self.calls: int = 0
        self.struck: int = 0
        self._errno = number
        self._nth = nth
        self._undo: list[Callable[[], None]] = []
        self._ended = False

    def _is_due(self) -> bool:
        self.calls += 1
        due = self._nth is None or self.calls in self._nth
        self.struck += due
        return due

    def install(self, fabric: Fabric, device: Device) -> None:
        """Stands between a device and its adapter."""
        for native in VERBS[self.verb]:
            self._stand_before(fabric, device, native)

    def _stand_before(self, fabric: Fabric, device: Device, native: str) -> None:
        hca: Any = device.adapter
        behind = getattr(hca, native)

        def refuse(*arguments: Any, **options: Any) -> Any:
            if not self._ended and self._is_due():
                name = errno_name(self._errno)
                told = f"fault: {self.verb} call {self.calls} refused with {name}"
                fabric._native.note(fabric.host_number(device) + 1, told)
                raise VerbsError(
                    self._errno,
                    self.verb,
                    None,
                    f"refused by a fault, call {self.calls}",
                    bad_wr=_first_wr(native, arguments),
                )
            return behind(*arguments, **options)

        setattr(hca, native, refuse)

        def undo() -> None:
            if getattr(hca, native, None) is refuse:
                delattr(hca, native)
                if getattr(hca, native) != behind:
                    setattr(hca, native, behind)

        self._undo.append(undo)

    def remove(self) -> None:
        """Ends it."""
        self._ended = True  # Who stands before the verb still calls it, if he came later.
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def __enter__(self) -> Refusal:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<Refusal {self.verb}: {self.struck} of {self.calls} calls>"


class ResourceFaults:
    """Faults of hosts, for `fabric.faults`.

    Times are virtual; None is now. What is closed by the time at which it was to be struck is not.
    """

    _fabric: Fabric

    def refuse(
        self,
        verb: str,
        error: int = errno.ENOMEM,
        *,
        nth: int | Iterable[int] | None = 1,
        host: Device | None = None,
    ) -> Refusal:
        """Refuses a verb at its n-th call.

        Args:
            verb: Name of the verb: create_qp, reg_mr, post_send and so on.
            error: What with.
            nth: Which calls, from 1 and from now on; None for every one.
            host: Whose; by default of all hosts that there are.

        Raises:
            VerbsError: EINVAL, for a verb or an error that there is not.
        """
        if verb not in VERBS:
            raise VerbsError(errno.EINVAL, "verb", verb, f"must be one of {', '.join(VERBS)}")
        if error not in errno.errorcode:
            raise VerbsError(errno.EINVAL, "error", error, "must be an errno")
        calls = None
        if nth is not None:
            calls = frozenset(unsigned("nth", number, 63) for number in numbers_of("nth", nth))
            if not calls or 0 in calls:
                raise VerbsError(errno.EINVAL, "nth", nth, "must be 1 or more: can strike nothing")
        fabric = self._fabric
        hosts = fabric.devices if host is None else [fabric.devices[fabric.host_number(host)]]
        if not hosts:
            raise VerbsError(errno.EINVAL, "host", None, "there is none yet: can strike nothing")
        refusal = Refusal(verb, error, calls)
        for device in hosts:
            refusal.install(fabric, device)
        return refusal

    def _at(
        self,
        struck: Device | QP | CQ,
        at_ns: int | None,
        what: str,
        strike: Callable[[], object],
    ) -> None:
        fabric = self._fabric
        host = struck if isinstance(struck, Device) else struck.device
        number = fabric.host_number(host) + 1
        struck._demand_ours()
        if at_ns is not None:
            unsigned("at_ns", at_ns, 63)
        native = fabric._native

        def noted() -> None:
            native.note(number, f"fault: {what}")
            strike()

        def later() -> None:
            # Its program may have closed it by then, and somebody else waits meanwhile.
            if not struck.closed:
                noted()

        if at_ns is None:
            noted()
        else:
            fabric.at(at_ns, later)

    def port_down(
        self, host: Device, *, at_ns: int | None = None, for_ns: int | None = None
    ) -> None:
        """Takes a host's port down, for a time or for good."""
        instance("host", host, Device)
        begin = self._fabric.now_ns if at_ns is None else unsigned("at_ns", at_ns, 62)
        span = None if for_ns is None else unsigned("for_ns", for_ns, 62)
        self._at(host, at_ns, "port down", lambda: set_port(host, active=False))
        if span is not None:
            self._at(host, begin + span, "port up", lambda: set_port(host, active=True))

    def cq_overflow(self, cq: CQ, *, at_ns: int | None = None) -> None:
        """Makes a completion queue overflow, as if it were full: CQ_ERR, and its queue pairs fail.

        What waits in it can still be polled; what comes later is lost.
        """
        hca = instance("cq", cq, CQ).device.adapter
        self._at(cq, at_ns, f"{cq!r} overflows", lambda: hca.overflow_cq(cq.handle))

    def gid_change(
        self, host: Device, gid: GIDLike | None, index: int = 0, *, at_ns: int | None = None
    ) -> None:
        """Replaces an entry of a host's GID table.

        Packets to the new address reach the host. Connections that exist keep the old one, by which
        it is still reached, until another host takes that. New ones need the new address, which
        `qp.info()` tells.

        Args:
            host: Its device.
            gid: The new GID or address; None for none.
            index: Of the entry.
            at_ns: When.

        Raises:
            VerbsError: EINVAL, if `index` is of an entry that was never in use.
        """
        self._fabric.host_number(instance("host", host, Device))
        address = None if gid is None else GID(gid)
        entry = unsigned("index", index, 32, most=len(host.adapter.gids) - 1)
        self._at(host, at_ns, "GID change", lambda: set_gid(host, address, entry))

    def device_fatal(self, host: Device, *, at_ns: int | None = None) -> None:
        """Makes a host's device fail for good."""
        instance("host", host, Device)
        self._at(host, at_ns, "device fatal", lambda: fail_device(host))

    def reset(self, qp: QP, *, at_ns: int | None = None, to: QPState = QPState.RESET) -> None:
        """Takes a queue pair to RESET, or to ERR, behind its program's back: a peer that died."""
        if to not in (QPState.RESET, QPState.ERR):
            raise VerbsError(errno.EINVAL, "to", to, "must be RESET or ERR")
        state = QPState(to)
        self._at(
            instance("qp", qp, QP),
            at_ns,
            f"{qp!r} to {state.name}",
            lambda: _take_to(qp, state),
        )
