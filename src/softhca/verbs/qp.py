"""Queue pairs."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from softhca import _adapter
from softhca.completion import drain
from softhca.completion.cqe import Cqe, tell_forgotten
from softhca.verbs import connection
from softhca.verbs.acknowledgement import Acknowledgement
from softhca.verbs.attributes import (
    QP_ATTR_MASK,
    QPAttr,
    QPCap,
    QPInitAttr,
    refused_attributes,
)
from softhca.verbs.awaited_work import AwaitedWork
from softhca.verbs.checks import instance, unsigned
from softhca.verbs.counters import Counters
from softhca.verbs.cq import CQ
from softhca.verbs.enums import QPState, QPType, SendFlags
from softhca.verbs.errors import VerbsError
from softhca.verbs.gid import GID, GIDLike, refused_as
from softhca.verbs.lifetime import VerbsObject, alive
from softhca.verbs.mr import MR
from softhca.verbs.mw import MW, BindInfo
from softhca.verbs.qp_info import QPInfo
from softhca.verbs.records import SEND_DTYPE, receives_of, view_of
from softhca.verbs.remote_memory import RemoteMemory
from softhca.verbs.srq import SRQ
from softhca.verbs.wr import Recv, SendRequest

if TYPE_CHECKING:
    from softhca.verbs.device import Device
    from softhca.verbs.pd import PD
    from softhca.verbs.records import Records, WrIds
    from softhca.verbs.xrcd import XRCD


class QP(AwaitedWork, VerbsObject):
    """A queue pair (struct ibv_qp). `pd.create_qp()` and `xrcd.create_qp()` make it.

    Tasks of asyncio and trio have a method for most work requests, `wc = await qp.write(mr, far)`,
    which takes what the work request of its name takes, but for `signaled` and `cqe`. The call
    posts, and raises what `post_send` or `post_recv` raises, EBUSY while its completion queue is
    awaited in another event loop, and RuntimeError outside of a task. What it returns waits, and
    gives the completion, be that an error; it raises ECANCELED if the queue pair is reset or
    destroyed before.

    Attributes:
        type: Service type.
        send_cq: Where its sends complete; None for a target of XRC.
        recv_cq: Where its receives complete; None for XRC, whose SRQ says.
        srq: Where its receives come from; None if they are posted to the queue pair itself.
        psn: First PSN that `connect` makes it send; random, by the device's seed.
    """

    __slots__ = (
        "_async_acks",
        "_groups",
        "_qpn",
        "_vanished",
        "device",
        "psn",
        "recv_cq",
        "send_cq",
        "srq",
        "type",
    )

    kind = "qp"

    def __init__(
        self,
        device: Device,
        qp_type: QPType,
        *,
        pd: PD | None = None,
        xrcd: XRCD | None = None,
        send_cq: CQ | None = None,
        recv_cq: CQ | None = None,
        srq: SRQ | None = None,
        max_send_wr: int = 0,
        max_recv_wr: int = 0,
        max_send_sge: int = 1,
        max_recv_sge: int = 1,
        max_inline_data: int = 0,
        sq_sig_all: bool = False,
    ) -> None:
        owner: VerbsObject = pd or xrcd or device
        hca = owner._hca
        parents = [owner]
        init = _adapter.QpInit()
        try:
            init.type = QPType(qp_type)
        except ValueError:
            raise VerbsError(errno.EINVAL, "qp_type", qp_type, "is no service type") from None
        _demand_parts(init.type, xrcd, send_cq, recv_cq)
        init.pd = pd.handle if pd is not None else 0
        init.xrcd = xrcd.handle if xrcd is not None else 0
        if send_cq is not None:
            parents.append(alive("send_cq", send_cq, CQ, hca))
            init.send_cq = send_cq.handle
        if recv_cq is not None:
            parents.append(alive("recv_cq", recv_cq, CQ, hca))
            init.recv_cq = recv_cq.handle
        if srq is not None:
            parents.append(alive("srq", srq, SRQ, hca))
            init.srq = srq.handle
        cap = _adapter.QpCap()
        cap.max_send_wr = unsigned("max_send_wr", max_send_wr, 32)
        cap.max_recv_wr = unsigned("max_recv_wr", max_recv_wr, 32)
        cap.max_send_sge = unsigned("max_send_sge", max_send_sge, 32)
        cap.max_recv_sge = unsigned("max_recv_sge", max_recv_sge, 32)
        cap.max_inline_data = unsigned("max_inline_data", max_inline_data, 32)
        init.cap = cap
        init.sq_sig_all = bool(sq_sig_all)
        self._async_acks = Acknowledgement()
        self._vanished: list[Cqe] = []
        self._qpn: int = hca.create_qp(init)
        self.device: Device = device
        self.send_cq: CQ | None = send_cq
        self.recv_cq: CQ | None = recv_cq
        self.srq: SRQ | None = srq
        self.type: QPType = init.type
        self._groups: set[GID] = set()
        self.psn: int = device._random.getrandbits(24)
        super().__init__(hca, *parents)
        device._qps[self._qpn] = self

    def _await_acknowledgement(self) -> None:
        self._async_acks.wait_until_none(self.kind, self.device._world)

    def _take_events_again(self) -> None:
        self._async_acks.take_again()

    def _destroy(self) -> None:
        self._vanished = self._hca.destroy_qp(self._qpn)
        self.device._qps.pop(self._qpn, None)

    def _aftermath(self) -> None:
        vanished, self._vanished = self._vanished, []
        tell_forgotten(vanished)

    def _let_go(self) -> None:
        for group in list(self._groups):
            self.detach_mcast(group)

    @property
    def qpn(self) -> int:
        """Number of the queue pair, 24 bits."""
        return self._qpn

    @property
    def state(self) -> QPState:
        """The state it is in now."""
        return self._hca.query_qp(self._qpn)[0].qp_state

    @property
    def init_attr(self) -> QPInitAttr:
        """How it was made; `cap` is what was really given."""
        init = self._hca.query_qp(self._qpn)[1]
        return QPInitAttr(init.type, init.sq_sig_all, QPCap.from_native(init.cap))

    @property
    def counters(self) -> Counters:
        """What this queue pair has counted since it was last in RESET."""
        return Counters(self._hca.qp_counters(self._qpn))

    def query(self) -> QPAttr:
        """Returns every attribute (ibv_query_qp)."""
        return QPAttr.from_native(self._hca.query_qp(self._qpn)[0])

    def modify(
        self, attr: QPAttr | None = None, attr_mask: int | None = None, **attributes: Any
    ) -> None:
        """Changes attributes or the state (ibv_modify_qp).

        Either `qp.modify(attr, mask)` with a `QPAttrMask`, or keywords that are fields of `QPAttr`:
        `qp.modify(qp_state=QPState.INIT, pkey_index=0, port_num=1, qp_access_flags=0)`.

        Args:
            attr: Values of the attributes that `attr_mask` names.
            attr_mask: Bits of `QPAttrMask`; with `attr` only.
            attributes: Values by name, instead of both.

        Raises:
            VerbsError: EINVAL, for a transition that does not exist, attributes that it lacks or
                does not allow (IBTA Vol 1, table 96), or values out of range. Nothing is changed.
            TypeError: For a keyword that is no attribute.
        """
        if attr is None and attr_mask is None:
            unknown = sorted(set(attributes) - set(QP_ATTR_MASK))
            if unknown:
                raise TypeError(f"{unknown[0]!r} is no attribute that modify() changes")
            attr = QPAttr(**attributes)
            attr_mask = 0
            for name in attributes:
                attr_mask |= QP_ATTR_MASK[name]
        elif attributes or attr is None or attr_mask is None:
            raise TypeError("modify() takes attr and attr_mask, or keywords")
        mask = unsigned("attr_mask", attr_mask, 32)
        native = instance("attr", attr, QPAttr).to_native(mask)
        try:
            vanished = self._hca.modify_qp(self._qpn, native, mask)
        except VerbsError as refusal:
            if refusal.argument != "attr_mask":
                raise
            raise refused_attributes(refusal, mask) from None
        tell_forgotten(vanished)

    def info(self, srqn: int = 0) -> QPInfo:
        """What a peer needs to connect to this queue pair.

        Args:
            srqn: XRC: shared receive queue that the peer shall name.

        Raises:
            VerbsError: EINVAL, if the queue pair is closed, or `srqn` is beyond 24 bits.
        """
        self._demand_ours()
        return connection.info_of(self, srqn)

    def connect(self, info: QPInfo | None = None, **overrides: Any) -> None:
        """Brings the queue pair through INIT and RTR to RTS, connected to `info`.

        By default: all remote rights, the smaller path MTU of both ports, timeout 16 (268 ms),
        retry_cnt 7, rnr_retry 7 (without end), min_rnr_timer 12 (0.64 ms), as many READs and
        atomics under way as both sides can.

        Args:
            info: The peer's `qp.info()`. UD has no peer: it may be None, and is not looked at.
            **overrides: Attributes of `QPAttr` to use instead, whatever the step they belong to.

        Raises:
            VerbsError: EINVAL, if the queue pair is not in RESET or `info` is of another type;
                what `modify` raises besides. It is in RESET again after a refusal.
        """
        connection.connect(self, info, overrides)

    def activate(self, qkey: int = connection.DEFAULT_QKEY, **overrides: Any) -> None:
        """Brings a UD queue pair to RTS.

        Args:
            qkey: What senders must name.
            **overrides: As for `connect`.

        Raises:
            VerbsError: EINVAL, if the queue pair is of another type; what `connect` raises.
        """
        if self.type is not QPType.UD:
            rule = "has a peer, whose info connect() takes: activate() is for UD"
            raise VerbsError(errno.EINVAL, "qp", None, rule)
        connection.connect(self, None, {"qkey": qkey, **overrides})

    def post_send(self, wrs: SendRequest | Sequence[SendRequest]) -> None:
        """Posts a work request, or several in order (ibv_post_send).

        Without a callback (`cqe`) it does not keep its regions: the program does, until it has
        completed. See `pd.reg_mr`.

        Args:
            wrs: One, or a sequence of them.

        Raises:
            VerbsError: ENOMEM, if the queue is full: unsignaled work requests keep their places
                until a later one completes. EINVAL, if one is malformed or the state does not
                allow it. `bad_wr` is the one that was refused; those before it stay posted.
        """
        if self.type is QPType.UD and not self._closed:
            if not isinstance(wrs, SendRequest | list | tuple) and isinstance(wrs, Iterable):
                wrs = list(wrs)  # What can be gone through only once is to be posted, too.
            self._refuse_foreign_handles(wrs)
        self._hca.post_send(self._qpn, wrs)

    def _refuse_foreign_handles(
        self, wrs: SendRequest | Sequence[SendRequest], by_index: bool = False
    ) -> None:
        # A handle is a number of its device, and would name another one here.
        listed: Sequence[Any] = wrs if isinstance(wrs, list | tuple) else [wrs]
        for index, wr in enumerate(listed):
            ah = wr.ah if isinstance(wr, SendRequest) else None
            if ah is not None and not ah.closed and ah._hca is not self._hca:
                self._hca.post_send(self._qpn, listed[:index])
                bad = index if by_index else wr
                raise VerbsError(errno.EINVAL, "ah", None, "belongs to another device", bad_wr=bad)

    def post_recv(self, wrs: Recv | Sequence[Recv]) -> None:
        """Posts a receive, or several in order (ibv_post_recv).

        Its regions are kept as by `post_send`: with a callback only.

        Args:
            wrs: One, or a sequence of them.

        Raises:
            VerbsError: ENOMEM, if the queue is full; EINVAL, in RESET, with an SRQ, or if one has
                too many entries. `bad_wr` is the one that was refused.
        """
        self._hca.post_recv(self._qpn, wrs)

    def post_send_many(
        self, wrs: SendRequest | Sequence[SendRequest] | Records, wr_ids: WrIds | None = None
    ) -> None:
        """Posts many work requests in order, without an object for each.

        Args:
            wrs: An array of `SEND_DTYPE`, or its bytes; a sequence of work requests; or one, which
                is posted once for each of `wr_ids`.
            wr_ids: Instead of the numbers that `wrs` has: the first, from which they are counted
                up, or one for each.

        Raises:
            VerbsError: As `post_send`; EINVAL besides, if the array is of another type, or there
                are not as many `wr_ids`. `bad_wr` is the index of the one that was refused, which
                is how many were posted.
        """
        if not isinstance(wrs, SendRequest | list | tuple):
            wrs = view_of("wrs", wrs, SEND_DTYPE, 80)
        elif self.type is QPType.UD and not self._closed:
            self._refuse_foreign_handles(wrs, by_index=True)
        self._hca.post_send_many(self._qpn, wrs, wr_ids)

    def post_recv_many(
        self, wrs: Recv | Sequence[Recv] | Records, wr_ids: WrIds | None = None
    ) -> None:
        """Posts many receives in order, without an object for each.

        Args:
            wrs: An array of `RECV_DTYPE`, or its bytes; a sequence of receives; or one, which is
                posted once for each of `wr_ids`.
            wr_ids: As for `post_send_many`.

        Raises:
            VerbsError: As `post_recv`, and as `post_send_many`.
        """
        self._hca.post_recv_many(self._qpn, receives_of(wrs), wr_ids)

    def bind_mw(
        self,
        mw: MW,
        bind: BindInfo,
        *,
        wr_id: int = 0,
        signaled: bool = False,
        fence: bool = False,
    ) -> RemoteMemory:
        """Posts a bind of a type 1 window (ibv_bind_mw; IBTA Vol 1, 10.6.7.2.1, o10-36).

        `mw.rkey` is the new key at once; it works when the bind has run, which the work requests
        behind it may rely on. The old key is dead from then on. A bind of length 0 unbinds.

        The bind may still fail when it runs, and completes with MW_BIND_ERR then: if the range
        leaves the region, the region lacks MW_BIND or (for a window to write through)
        LOCAL_WRITE, or one of them is of another protection domain.

        Args:
            mw: A window of type 1.
            bind: What to bind it to.
            wr_id: 64 bits that come back in the completion.
            signaled: Ask for a completion of success.
            fence: Wait until earlier READs and atomics of the queue pair have completed.

        Returns:
            What the peer needs to reach the memory.

        Raises:
            VerbsError: EINVAL, if the window is of type 2 or ZERO_BASED is asked for, or as
                `post_send`. `mw.rkey` is then what it was.
        """
        alive("mw", mw, MW, self._hca)
        info = instance("bind", bind, BindInfo)
        if info.mr is not None:
            alive("bind.mr", info.mr, MR, self._hca)
        flags = (SendFlags.SIGNALED if signaled else 0) | (SendFlags.FENCE if fence else 0)
        rkey = self._hca.bind_mw(
            self._qpn, mw.handle, info.native, unsigned("wr_id", wr_id, 64), flags
        )
        mw._rkey = rkey
        mw._keep(info.mr)
        return info.remote(rkey)

    def drain_sq(self) -> None:
        """As `softhca.drain_sq(qp)`: goes to ERR and waits for the callbacks of all sends."""
        drain.drain_sq(self)

    def drain_rq(self) -> None:
        """As `softhca.drain_rq(qp)`: goes to ERR and waits for the callbacks of all receives."""
        drain.drain_rq(self)

    def drain(self) -> None:
        """As `softhca.drain_qp(qp)`: goes to ERR and waits for the callbacks of all work."""
        drain.drain_qp(self)

    def attach_mcast(self, group: GIDLike) -> None:
        """Receives what is sent to a multicast group (ibv_attach_mcast). UD only.

        Args:
            group: Its address or GID.

        Raises:
            VerbsError: EINVAL, if it is no multicast address or the queue pair not of UD; ENOMEM,
                above the device's limits.
        """
        with refused_as("group", group):
            gid = GID(group)
            self._hca.attach_mcast(self._qpn, gid.raw)
        self._groups.add(gid)

    def detach_mcast(self, group: GIDLike) -> None:
        """Leaves a group; a queue pair that is still in one cannot be closed (ibv_detach_mcast).

        Args:
            group: Its address or GID.

        Raises:
            VerbsError: EINVAL, if the queue pair is not in it.
        """
        with refused_as("group", group):
            gid = GID(group)
            self._hca.detach_mcast(self._qpn, gid.raw)
        self._groups.discard(gid)

    def __repr__(self) -> str:
        return f"<QP {self._qpn:#x} {self.type.name}>"


def _demand_parts(
    qp_type: QPType, xrcd: XRCD | None, send_cq: CQ | None, recv_cq: CQ | None
) -> None:
    """Refuses by name what the adapter would call an object that there is not, of number 0."""
    if qp_type is QPType.XRC_RECV:
        if xrcd is None:
            rule = "is made by xrcd.create_qp()"
            raise VerbsError(errno.EINVAL, "qp_type", qp_type, rule)
        return
    if send_cq is None:
        raise VerbsError(errno.EINVAL, "send_cq", None, "must be given: sends complete there")
    if recv_cq is None and qp_type is not QPType.XRC_SEND:
        raise VerbsError(errno.EINVAL, "recv_cq", None, "must be given: receives complete there")


_adapter.quicken(QP)
