"""Devices: an adapter, and everything that is made from it."""

from __future__ import annotations

import atexit
import errno
import random
import weakref
from typing import TYPE_CHECKING, Any

from softhca import _adapter
from softhca.completion.cqe import Cqe, tell_forgotten
from softhca.completion.crew import Crews, join_all, vector_count
from softhca.completion.poll_context import PollContext
from softhca.completion.pool import CQPool
from softhca.verbs.attributes import DeviceAttr, PortAttr
from softhca.verbs.callback_cq import CallbackCQ, ExceptionHook, poll_context_of
from softhca.verbs.checks import instance, integer, unsigned
from softhca.verbs.comp_channel import CompChannel
from softhca.verbs.counters import Counters
from softhca.verbs.cq import CQ
from softhca.verbs.dm import DM
from softhca.verbs.enums import AtomicCap, DeviceCap, Mtu, PortState
from softhca.verbs.errors import VerbsError
from softhca.verbs.events import AsyncEvent, AsyncEvents, take_event, until_readable, wait_for_event
from softhca.verbs.gid import GID
from softhca.verbs.lifetime import VerbsObject, alive, made_once
from softhca.verbs.pd import PD
from softhca.verbs.process_end import at_end_of_worker, excuse_daemons
from softhca.verbs.wc import WC
from softhca.verbs.world import World
from softhca.verbs.xrcd import XRCD

if TYPE_CHECKING:
    from softhca.invalidation.channel import InvalidationChannel
    from softhca.verbs.qp import QP
    from softhca.verbs.srq import SRQ

# What ibv_devinfo shows of who made it: an OUI of nobody, and our version.
_VENDOR_ID = 0x020000
_VENDOR_PART_ID = 1

_CAPS = (
    DeviceCap.AUTO_PATH_MIG
    | DeviceCap.PORT_ACTIVE_EVENT
    | DeviceCap.MEM_WINDOW
    | DeviceCap.XRC
    | DeviceCap.MEM_MGT_EXTENSIONS
    | DeviceCap.FLUSH_GLOBAL
    | DeviceCap.ATOMIC_WRITE
)
_2A, _2B = DeviceCap.MEM_WINDOW_TYPE_2A, DeviceCap.MEM_WINDOW_TYPE_2B

_open_devices: weakref.WeakSet[Device] = weakref.WeakSet()


class Device(VerbsObject):
    """An opened adapter (struct ibv_context). `softhca.open()` makes it.

    Attributes:
        name: What tools call it.
        adapter: The native adapter; private to `softhca` and its tests.
    """

    __slots__ = (
        "_callback_crews",
        "_cq_pool",
        "_cqs",
        "_gid",
        "_qps",
        "_random",
        "_srqs",
        "_vanished",
        "_vectors",
        "_world",
        "max_rd_atomic",
        "name",
    )

    kind = "device"

    def __init__(
        self,
        hca: _adapter.Hca,
        *,
        name: str | None,
        seed: int | None,
        world: World | None = None,
    ) -> None:
        self._gid = GID(hca.gids[0])
        self.name: str = name if name is not None else f"softhca-{self._gid.ip}"
        self._random = random.Random(seed)
        limits = hca.limits()
        self.max_rd_atomic: int = min(limits["max_qp_rd_atom"], limits["max_qp_init_rd_atom"])
        self._qps: weakref.WeakValueDictionary[int, QP] = weakref.WeakValueDictionary()
        self._cqs: weakref.WeakValueDictionary[int, CQ] = weakref.WeakValueDictionary()
        self._srqs: weakref.WeakValueDictionary[int, SRQ] = weakref.WeakValueDictionary()
        self._callback_crews: Crews | None = None
        self._vectors = vector_count() if world is None else world.num_comp_vectors
        self._cq_pool = CQPool(self._vectors)
        self._vanished: list[Cqe] = []
        self._world = world  # Of a simulated device: the fabric it is in.
        super().__init__(hca)
        _open_devices.add(self)
        at_end_of_worker(_close_all)

    def _tell_left_open(self, told: str) -> None:
        if self._world is not None:
            self._world.left_open(f"{told} of {self.name}")

    def _destroy(self) -> None:
        for cq in self._cq_pool.take_all():
            cq._leave_pool()
        if self._callback_crews is not None:
            self._callback_crews.stop()
        self._hca.close()
        self._vanished = self._hca.take_all_cqes()

    def _aftermath(self) -> None:
        vanished, self._vanished = self._vanished, []
        tell_forgotten(vanished)
        # They hold the adapter, whose descriptors are to go.
        crews, self._callback_crews = self._callback_crews, None
        if crews is not None:
            crews.join()

    def _forget(self) -> None:
        if self._inherited():
            self._hca.close()  # Gives up this process's copies of the descriptors.
        super()._forget()

    def close(self) -> None:
        """Closes the device: it takes no packets any more. Does nothing the second time.

        Raises:
            VerbsError: EBUSY, if objects that were made from it still live; EDEADLK, in a
                predicate or script of its `LinkFaults`. It stays open.
        """
        self._refuse_within_its_work()
        super().close()

    def _refuse_within_its_work(self) -> None:
        if not self._closed and not self._inherited():
            self._hca.may_close()

    def _close_with_children(self) -> None:
        self._refuse_within_its_work()
        try:
            super()._close_with_children()
        except VerbsError:
            # An exception out of a signal handler can leave an object that the adapter has and
            # Python has not, and its parents then refuse. They all go with the adapter.
            self._destroy()
            self._forget_with_children()
            self._aftermath()

    @property
    def adapter(self) -> _adapter.Hca:
        """The native adapter, for simulation and tests."""
        return self._hca

    @property
    def gid(self) -> GID:
        """The address that the device was opened with: entry 0 of its GID table then.

        `query_gid()` says what it is now.
        """
        return self._gid

    @property
    def active_mtu(self) -> Mtu:
        """Largest path MTU that the port carries now, or that `open` was told to use."""
        return Mtu(self._hca.query_port().active_mtu)

    def query_device(self) -> DeviceAttr:
        """Returns what the device is and its limits (ibv_query_device)."""
        hca = self._hca
        limits = hca.limits()
        limits.pop("gid_table_len")
        return DeviceAttr(
            fw_ver="0.1.0",
            node_guid=hca.node_guid,
            sys_image_guid=hca.node_guid,
            vendor_id=_VENDOR_ID,
            vendor_part_id=_VENDOR_PART_ID,
            hw_ver=1,
            atomic_cap=AtomicCap.GLOB,
            masked_atomic_cap=AtomicCap.GLOB,
            device_cap_flags=_CAPS | (_2A if hca.windows_2a else _2B),
            phys_port_cnt=1,
            **limits,
        )

    def query_port(self, port: int = 1) -> PortAttr:
        """Returns state and limits of the port (ibv_query_port).

        Raises:
            VerbsError: EINVAL, if `port` is not 1.
        """
        _check_port(port)
        attr = self._hca.query_port()
        return PortAttr(
            state=PortState(attr.state),
            max_mtu=Mtu(attr.max_mtu),
            active_mtu=Mtu(attr.active_mtu),
            gid_tbl_len=attr.gid_tbl_len,
            pkey_tbl_len=attr.pkey_tbl_len,
            max_msg_sz=attr.max_msg_sz,
            bad_pkey_cntr=attr.bad_pkey_cntr,
            qkey_viol_cntr=attr.qkey_viol_cntr,
        )

    def query_gid(self, port: int = 1, index: int = 0) -> GID:
        """Returns an entry of the GID table (ibv_query_gid); entries not in use are zero.

        Raises:
            VerbsError: EINVAL, if `port` is not 1 or `index` is beyond the table.
        """
        _check_port(port)
        unsigned("index", index, 32, most=self._hca.query_port().gid_tbl_len - 1)
        gids = self._hca.gids
        return GID(gids[index]) if index < len(gids) else GID(bytes(16))

    def query_pkey(self, port: int = 1, index: int = 0) -> int:
        """Returns an entry of the P_Key table (ibv_query_pkey).

        Raises:
            VerbsError: EINVAL, if `port` is not 1 or `index` is beyond the table.
        """
        _check_port(port)
        unsigned("index", index, 32, most=self._hca.query_port().pkey_tbl_len - 1)
        return self._hca.pkeys[index]

    @property
    def counters(self) -> Counters:
        """What the whole adapter has counted, under the names of Linux's hw_counters."""
        return Counters(self._hca.counters())

    @property
    def link_counters(self) -> dict[str, Any]:
        """What sockets, capture and injected faults have counted; empty in a simulation."""
        return self._hca.link_counters()

    def alloc_pd(self) -> PD:
        """Allocates a protection domain (ibv_alloc_pd); ENOMEM above max_pd."""
        return PD(self)

    @property
    def num_comp_vectors(self) -> int:
        """Completion vectors: groups of queues whose callbacks share a thread, or a pool of them.

        One per processor that the process may use.
        """
        return self._vectors

    @property
    def clock_ns(self) -> int:
        """The adapter's clock, in nanoseconds; `wc.timestamp_ns` is of it, where it is not 0."""
        return self._hca.clock_ns

    def create_comp_channel(self) -> CompChannel:
        """Creates a completion channel (ibv_create_comp_channel)."""
        return CompChannel(self)

    def create_cq(
        self,
        cqe: int,
        *,
        channel: CompChannel | None = None,
        comp_vector: int = 0,
        context: object = None,
        timestamps: bool = True,
    ) -> CQ:
        """Creates a completion queue for at least `cqe` completions (ibv_create_cq).

        Args:
            cqe: Completions.
            channel: Where its events go; by default to a channel of its own, `cq.channel`.
            comp_vector: Below `num_comp_vectors`.
            context: Kept as `cq.context`.
            timestamps: Whether completions say when they were, which takes a look at the clock
                (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP); without it `wc.timestamp_ns` is 0.

        Raises:
            VerbsError: EINVAL, if `cqe` is 0 or above max_cqe, or another argument is out of
                range; ENOMEM, above max_cq queues.
        """
        return CQ(
            self,
            cqe,
            channel=channel,
            comp_vector=comp_vector,
            context=context,
            timestamps=timestamps,
        )

    def alloc_cq(
        self,
        nr_cqe: int,
        *,
        comp_vector: int = 0,
        poll_context: PollContext = PollContext.SOFTIRQ,
        private: object = None,
        on_exception: ExceptionHook | None = None,
    ) -> CallbackCQ:
        """Allocates a completion queue that calls back (ib_alloc_cq).

        Args:
            nr_cqe: Completions.
            comp_vector: Below `num_comp_vectors`.
            poll_context: Where callbacks run.
            private: Kept as `cq.private`.
            on_exception: Called with the exception, the completion and the work request when a
                callback raised; by default `sys.unraisablehook` is.

        Raises:
            VerbsError: As `create_cq`; EAGAIN, if a thread for the callbacks cannot be started.
        """
        return CallbackCQ(
            self,
            nr_cqe,
            comp_vector=comp_vector,
            poll_context=poll_context,
            private=private,
            on_exception=on_exception,
        )

    def _crews(self) -> Crews:
        return made_once(
            self,
            "_callback_crews",
            lambda: Crews(self._hca, self.name, self._cqs.get, WC, self._world),
            Crews.stop,
        )

    def _alloc_shared_cq(self, nr_cqe: int, vector: int, context: PollContext) -> CallbackCQ:
        return CallbackCQ(self, nr_cqe, comp_vector=vector, poll_context=context, shared=True)

    def cq_pool_get(
        self,
        nr_cqe: int,
        comp_vector_hint: int = -1,
        poll_context: PollContext = PollContext.SOFTIRQ,
    ) -> CallbackCQ:
        """Takes a share of a completion queue that others use too (ib_cq_pool_get).

        Of the queues on its vector that have room, it is the one with the least in use; a queue of
        at least 4096 completions is made if none has. They all live as long as the device.

        Args:
            nr_cqe: Completions that may wait for the caller at most. He gives as many back with
                `cq_pool_put`, once his queue pairs are closed.
            comp_vector_hint: Vector, modulo `num_comp_vectors`; -1 for the one with the least in
                use.
            poll_context: Where callbacks run; not DIRECT.

        Raises:
            VerbsError: EINVAL, for DIRECT, and if `nr_cqe` is 0 or above max_cqe; ENOMEM, above
                max_cq queues; EAGAIN, if a thread for the callbacks cannot be started.
        """
        context = poll_context_of(poll_context)
        if context is PollContext.DIRECT:
            rule = "must be polled by threads: who would poll a shared queue for all?"
            raise VerbsError(errno.EINVAL, "poll_context", context, rule)
        max_cqe: int = self._hca.limits()["max_cqe"]
        hint = integer("comp_vector_hint", comp_vector_hint)
        if hint != -1:
            unsigned("comp_vector_hint", hint, 31)
        count = _counted("nr_cqe", nr_cqe, max_cqe)
        return self._cq_pool.get(count, hint, context, max_cqe, self._alloc_shared_cq)

    def cq_pool_put(self, cq: CallbackCQ, nr_cqe: int) -> None:
        """Gives a share back (ib_cq_pool_put); the queue itself stays.

        Args:
            cq: A queue that `cq_pool_get` returned.
            nr_cqe: How many completions were taken of it.

        Raises:
            VerbsError: EINVAL, if the queue is not of this device's pool, or `nr_cqe` more than
                what is taken of it.
        """
        queue = alive("cq", cq, CallbackCQ, self._hca)
        self._cq_pool.put(queue, _counted("nr_cqe", nr_cqe, (1 << 32) - 1))

    def run_callbacks(self) -> bool:
        """Runs callbacks that are due; for simulated devices, which have no threads.

        Returns:
            True if there was anything to do.

        Raises:
            VerbsError: EOPNOTSUPP, for other devices, whose threads do it.
        """
        if not self._hca.is_simulated:
            rule = "is not simulated: its threads run callbacks"
            raise VerbsError(errno.EOPNOTSUPP, "device", None, rule)
        return self._callback_crews is not None and self._callback_crews.run_ready()

    def alloc_dm(self, length: int, log_align_req: int = 0) -> DM:
        """Allocates device memory (ibv_alloc_dm).

        Args:
            length: Bytes.
            log_align_req: Alignment of its first byte, as a power of two; 12 at most.

        Raises:
            VerbsError: EINVAL, for a length of 0 or a larger alignment; ENOMEM, if max_dm_size
                bytes would be exceeded.
        """
        return DM(self, length, log_align_req)

    def create_invalidation_channel(self) -> InvalidationChannel:
        """Creates a channel that tells when memory of regions goes away.

        Raises:
            VerbsError: EOPNOTSUPP, where the system cannot tell: it needs Linux 6.7, on
                arm64 6.10, and userfaultfd(2), which a sandbox may forbid.
        """
        from softhca.invalidation.channel import InvalidationChannel

        return InvalidationChannel(self)

    def alloc_xrcd(self) -> XRCD:
        """Allocates an XRC domain (ibv_open_xrcd); ENOMEM above max_xrcd."""
        return XRCD(self)

    def poll_async_event(self) -> AsyncEvent | None:
        """Takes the oldest asynchronous event; None if there is none.

        Events of an object go with it when it is closed. Of the same event of the same object one
        waits at a time, the latest.
        """
        return take_event(self)

    def get_async_event(self, timeout: float | None = None) -> AsyncEvent:
        """Waits for an asynchronous event and takes it (ibv_get_async_event).

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            TimeoutError: If none came in time.
            VerbsError: EINVAL or ENODEV, when the device is closed, also during the wait;
                EOPNOTSUPP, on a simulated device without a fabric, where nothing happens while one
                waits.
        """
        if self._world is not None:
            return self._world.wait(
                self.poll_async_event, timeout, f"an asynchronous event of {self.name}"
            )
        hca = self._hca  # Keeps the descriptor open though the device be closed.
        return wait_for_event(self.poll_async_event, timeout, until_readable(hca.async_event_fd))

    def async_events(self) -> AsyncEvents:
        """The events for `async for`, in a task of asyncio or trio.

        `async for event in device.async_events():` waits for each event and takes it. It loses
        none when its task is cancelled, and ends with the VerbsError of `get_async_event` when
        the device is closed.
        """
        return AsyncEvents(self)

    def ack_async_event(self, event: AsyncEvent) -> None:
        """Acknowledges an event, as `event.ack()` does (ibv_ack_async_event).

        Raises:
            VerbsError: EINVAL, if it was acknowledged already, or is of another device.
        """
        if instance("event", event, AsyncEvent)._device is not self:
            raise VerbsError(errno.EINVAL, "event", None, "is of another device")
        event.ack()

    def async_event_fileno(self) -> int:
        """A descriptor that is readable while an asynchronous event waits, for select and epoll.

        It is readable for good once the device is closed, for as long as somebody waits there.

        Raises:
            VerbsError: EINVAL, if the device is closed; EIO, in a child of fork(), which shares the
                parent's.
        """
        self._demand_ours()
        return self._hca.async_event_fd

    def __repr__(self) -> str:
        return f"<Device {self.name}>"


def _counted(argument: str, value: int, most: int) -> int:
    number = integer(argument, value)
    if not 1 <= number <= most:
        raise VerbsError(errno.EINVAL, argument, number, f"must be 1 to {most}")
    return number


def _check_port(port: int) -> None:
    if integer("port", port) != 1:
        raise VerbsError(errno.EINVAL, "port", port, "must be 1, the only port")


def _close_all() -> None:
    """Completes captures and frees ports of devices that the program left open at its end."""
    left = [one for one in list(_open_devices) if not one.closed and not one._inherited()]
    # Callbacks that are running may finish while their devices still work.
    join_all()
    if left:
        excuse_daemons(VerbsError)
    for device in left:
        try:
            device._destroy()
        except VerbsError:
            if not device.closed:  # By a daemon thread, meanwhile.
                raise


atexit.register(_close_all)
