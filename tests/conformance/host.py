"""One adapter without a driver, and the objects that a test needs on it; time is the test's."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Any

from softhca._adapter import (
    Access,
    AhAttr,
    Completion,
    Hca,
    IcrcLevel,
    Packet,
    QpAttr,
    QPAttrMask,
    QpInit,
    QPState,
    QPType,
    RecvWr,
    Route,
    SendFlags,
    SendWr,
    SrqAttr,
    WcStatus,
    WrOpcode,
    buffer_address,
    check_icrc,
)

OURS = "10.9.0.2"
THEIRS = "10.9.0.1"
MS = 1_000_000

EVERYTHING = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC

# Which bit of the mask says that an attribute is given.
MASK_OF = {
    "qp_state": QPAttrMask.STATE,
    "cur_qp_state": QPAttrMask.CUR_STATE,
    "en_sqd_async_notify": QPAttrMask.EN_SQD_ASYNC_NOTIFY,
    "qp_access_flags": QPAttrMask.ACCESS_FLAGS,
    "pkey_index": QPAttrMask.PKEY_INDEX,
    "port_num": QPAttrMask.PORT,
    "qkey": QPAttrMask.QKEY,
    "ah_attr": QPAttrMask.AV,
    "path_mtu": QPAttrMask.PATH_MTU,
    "timeout": QPAttrMask.TIMEOUT,
    "retry_cnt": QPAttrMask.RETRY_CNT,
    "rnr_retry": QPAttrMask.RNR_RETRY,
    "rq_psn": QPAttrMask.RQ_PSN,
    "max_rd_atomic": QPAttrMask.MAX_QP_RD_ATOMIC,
    "alt_ah_attr": QPAttrMask.ALT_PATH,
    "min_rnr_timer": QPAttrMask.MIN_RNR_TIMER,
    "sq_psn": QPAttrMask.SQ_PSN,
    "max_dest_rd_atomic": QPAttrMask.MAX_DEST_RD_ATOMIC,
    "path_mig_state": QPAttrMask.PATH_MIG_STATE,
    "cap": QPAttrMask.CAP,
    "dest_qp_num": QPAttrMask.DEST_QPN,
}


def gid_of(address: str) -> bytes:
    """The GID of an IP address; an IPv4 address is mapped."""
    packed = ipaddress.ip_address(address).packed
    return packed if len(packed) == 16 else bytes(10) + b"\xff\xff" + packed


def pattern(length: int, salt: int = 0) -> bytes:
    """Bytes that tell where they belong: no two pages of it are the same."""
    return bytes((i * 7 + (i >> 8) * 13 + salt) & 0xFF for i in range(length))


def errno_of(call: Any, *arguments: Any, **keywords: Any) -> int:
    """Calls; returns the errno of its refusal, or 0."""
    try:
        call(*arguments, **keywords)
    except OSError as error:
        return error.errno or -1
    return 0


class Region:
    """Registered memory of this process."""

    def __init__(self, host: Host, pd: int, length: int, access: int, iova: int | None) -> None:
        self.host = host
        self.bytes = bytearray(length)
        # An export pins the bytearray: it cannot be resized, so the address holds.
        self._pin = memoryview(self.bytes)
        self._start = buffer_address(self.bytes) if length else 0x1000
        self.address = self._start if iova is None else iova
        info = host.hca.reg_mr(pd, self._start, length, self.address, int(access))
        self.handle, self.lkey, self.rkey = info.handle, info.lkey, info.rkey

    def sge(self, offset: int = 0, length: int | None = None) -> tuple[int, int, int]:
        if length is None:
            length = len(self.bytes) - offset
        return (self.address + offset, length, self.lkey)

    def dereg(self) -> None:
        self.host.hca.dereg_mr(self.handle)


@dataclass(frozen=True)
class Sent:
    """A packet that the adapter wanted sent."""

    packet: Packet
    route: Route
    retransmitted: bool


@dataclass
class Host:
    """An adapter at one address, with a protection domain and a CQ for each direction."""

    address: str = OURS
    seed: int = 1
    active_mtu: int = 5
    pkeys: tuple[int, ...] = (0xFFFF,)
    icrc_level: IcrcLevel = IcrcLevel.STRICT
    retry_early: bool = False
    limits: dict[str, int] = field(default_factory=dict)
    now_ns: int = 1_000_000_000

    def __post_init__(self) -> None:
        self.hca = Hca(
            gids=[gid_of(self.address)],
            seed=self.seed,
            active_mtu=self.active_mtu,
            node_guid=1,
            udp_source_ports=[],
            icrc_level=self.icrc_level,
            pkeys=list(self.pkeys),
            retry_early=self.retry_early,
            limits=self.limits,
        )
        self.hca.advance(self.now_ns)
        self.pd = self.hca.alloc_pd()
        self.send_cq = self.hca.create_cq(256)
        self.recv_cq = self.hca.create_cq(256)
        self.channel, number = self.hca.create_channel()
        for cq in (self.send_cq, self.recv_cq):
            self.hca.attach_cq(cq, number)
        self.outbox: list[Sent] = []
        # Registered by address, so the bytes must outlive whatever the test forgets.
        self.regions: list[Region] = []

    # --- objects

    def memory(
        self,
        length: int = 65536,
        access: int = EVERYTHING,
        *,
        pd: int | None = None,
        iova: int | None = None,
    ) -> Region:
        region = Region(self, self.pd if pd is None else pd, length, access, iova)
        self.regions.append(region)
        return region

    def srq(self, max_wr: int = 16, max_sge: int = 4, **more: int) -> int:
        attr = SrqAttr()
        attr.max_wr, attr.max_sge = max_wr, max_sge
        return self.hca.create_srq(
            more.get("pd", self.pd), attr, more.get("xrcd", 0), more.get("cq", 0)
        )

    def address_handle(self, address: str = THEIRS, *, pd: int | None = None) -> int:
        return self.hca.create_ah(self.pd if pd is None else pd, av_to(address))

    # --- packets and time

    def pump(self) -> None:
        """Takes what the adapter has to send into the outbox."""
        while (sent := self.hca.next_packet(self.now_ns)) is not None:
            assert check_icrc(sent.route, sent.datagram, IcrcLevel.STRICT).good
            packet = Packet.decode(sent.datagram)
            assert packet.problem == ""
            self.outbox.append(Sent(packet, sent.route, sent.retransmitted))

    def advance(self, by_ns: int) -> None:
        self.now_ns += by_ns
        self.hca.advance(self.now_ns)

    # --- what happened

    def send_wcs(self) -> list[Completion]:
        return self.hca.poll_cq(self.send_cq, 1024, Completion)

    def recv_wcs(self) -> list[Completion]:
        return self.hca.poll_cq(self.recv_cq, 1024, Completion)

    def sends(self) -> list[tuple[int, WcStatus]]:
        return [(wc.wr_id, wc.status) for wc in self.send_wcs()]

    def receives(self) -> list[tuple[int, WcStatus]]:
        return [(wc.wr_id, wc.status) for wc in self.recv_wcs()]

    def events(self) -> list[tuple[Any, int]]:
        taken = []
        while (event := self.hca.next_async_event()) is not None:
            taken.append(event)
        return taken


def av_to(address: str) -> AhAttr:
    attr = AhAttr()
    attr.dgid = gid_of(address)
    return attr


@dataclass
class Qp:
    """A queue pair of the host, still in RESET."""

    host: Host
    qp_type: QPType = QPType.RC
    send_cq: int | None = None
    recv_cq: int | None = None
    pd: int | None = None
    srq: int = 0
    xrcd: int = 0
    sq_sig_all: bool = False
    max_send_wr: int = 64
    max_recv_wr: int = 64
    max_sge: int = 4
    max_inline_data: int = 256

    def __post_init__(self) -> None:
        init = QpInit()
        init.type = self.qp_type
        # A target finds its memory by the shared receive queue that a packet names.
        pd = 0 if self.qp_type == QPType.XRC_RECV else self.host.pd
        init.pd = pd if self.pd is None else self.pd
        init.send_cq = self.host.send_cq if self.send_cq is None else self.send_cq
        init.recv_cq = self.host.recv_cq if self.recv_cq is None else self.recv_cq
        init.srq, init.xrcd, init.sq_sig_all = self.srq, self.xrcd, self.sq_sig_all
        cap = init.cap
        cap.max_send_wr, cap.max_recv_wr = self.max_send_wr, self.max_recv_wr
        cap.max_send_sge = cap.max_recv_sge = self.max_sge
        cap.max_inline_data = self.max_inline_data
        init.cap = cap
        self.qpn = self.host.hca.create_qp(init)

    def modify(self, mask: int | None = None, **attributes: Any) -> None:
        """Modifies what is named; `mask` replaces the mask that the names make."""
        attr, bits = QpAttr(), 0
        for name, value in attributes.items():
            setattr(attr, name, value)
            bits |= MASK_OF[name]
        self.host.hca.modify_qp(self.qpn, attr, bits if mask is None else mask)

    def query(self) -> QpAttr:
        return self.host.hca.query_qp(self.qpn)[0]

    @property
    def state(self) -> QPState:
        return self.query().qp_state

    def counters(self) -> dict[str, int]:
        return self.host.hca.qp_counters(self.qpn)

    def destroy(self) -> None:
        self.host.hca.destroy_qp(self.qpn)

    # --- posting

    def post(self, *wrs: SendWr) -> None:
        self.host.hca.post_send(self.qpn, list(wrs))

    def recv(self, *sges: tuple[int, int, int], wr_id: int = 0) -> None:
        self.host.hca.post_recv(self.qpn, RecvWr(list(sges), wr_id=wr_id))


def send(*sges: tuple[int, int, int], wr_id: int = 0, flags: int = SendFlags.SIGNALED, **more: Any):
    return SendWr(
        more.pop("opcode", WrOpcode.SEND), list(sges), wr_id=wr_id, send_flags=int(flags), **more
    )


def write(*sges: tuple[int, int, int], to: int = 0x10000, rkey: int = 0x55, **more: Any) -> SendWr:
    return send(
        *sges,
        opcode=more.pop("opcode", WrOpcode.RDMA_WRITE),
        remote_address=to,
        rkey=rkey,
        **more,
    )


def read(*sges: tuple[int, int, int], at: int = 0x10000, rkey: int = 0x55, **more: Any) -> SendWr:
    return send(*sges, opcode=WrOpcode.RDMA_READ, remote_address=at, rkey=rkey, **more)


def fetch_add(*sges: tuple[int, int, int], at: int = 0x10000, add: int = 1, **more: Any) -> SendWr:
    return send(
        *sges,
        opcode=WrOpcode.ATOMIC_FETCH_AND_ADD,
        remote_address=at,
        rkey=more.pop("rkey", 0x55),
        compare_add=add,
        **more,
    )


def compare_swap(
    *sges: tuple[int, int, int], at: int = 0x10000, compare: int = 0, swap: int = 0, **more: Any
) -> SendWr:
    return send(
        *sges,
        opcode=WrOpcode.ATOMIC_CMP_AND_SWP,
        remote_address=at,
        rkey=more.pop("rkey", 0x55),
        compare_add=compare,
        swap=swap,
        **more,
    )
