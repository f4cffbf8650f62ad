"""What queries return and modify takes: struct ibv_*_attr as dataclasses."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field

from softhca import _adapter
from softhca.verbs.checks import instance, unsigned
from softhca.verbs.enums import (
    Access,
    AtomicCap,
    DeviceCap,
    MigState,
    Mtu,
    PortState,
    QPAttrMask,
    QPState,
    QPType,
)
from softhca.verbs.errors import VerbsError
from softhca.verbs.gid import GID, GIDLike, refused_as


@dataclass(frozen=True)
class DeviceAttr:
    """What a device is and how much of everything it has (struct ibv_device_attr).

    What is reported can be allocated; one more is refused.
    """

    fw_ver: str
    node_guid: int
    sys_image_guid: int
    vendor_id: int
    vendor_part_id: int
    hw_ver: int
    atomic_cap: AtomicCap
    masked_atomic_cap: AtomicCap
    device_cap_flags: DeviceCap
    phys_port_cnt: int
    max_mr_size: int
    max_dm_size: int
    max_msg_sz: int
    max_qp: int
    max_qp_wr: int
    max_sge: int
    max_inline_data: int
    max_qp_rd_atom: int
    max_qp_init_rd_atom: int
    max_cq: int
    max_cqe: int
    max_mr: int
    max_mw: int
    max_fast_reg_page_list_len: int
    max_pd: int
    max_ah: int
    max_srq: int
    max_srq_wr: int
    max_srq_sge: int
    max_xrcd: int
    max_mcast_grp: int
    max_mcast_qp_attach: int
    max_pkeys: int


@dataclass(frozen=True)
class PortAttr:
    """State and limits of a port (struct ibv_port_attr)."""

    state: PortState
    max_mtu: Mtu
    active_mtu: Mtu
    gid_tbl_len: int
    pkey_tbl_len: int
    max_msg_sz: int
    bad_pkey_cntr: int
    qkey_viol_cntr: int
    link_layer: str = "Ethernet"


@dataclass(frozen=True)
class AHAttr:
    """Where packets go (struct ibv_ah_attr with its struct ibv_global_route).

    Attributes:
        dgid: Destination: a GID, or what `GID()` takes.
        sgid_index: Entry of our GID table that packets come from.
        flow_label: 20 bits; IPv6 only.
        hop_limit: 0 and 1 mean the default, 64.
        traffic_class: IPv4 TOS or IPv6 traffic class.
        sl: Service level, 0 to 15.
        port_num: Always 1.
        is_global: Must be true in RoCE.
    """

    dgid: GIDLike
    sgid_index: int = 0
    flow_label: int = 0
    hop_limit: int = 64
    traffic_class: int = 0
    sl: int = 0
    port_num: int = 1
    is_global: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.dgid, bytearray | memoryview):
            # A value does not follow what is received into the buffer next.
            object.__setattr__(self, "dgid", bytes(self.dgid))

    def to_native(self) -> _adapter.AhAttr:
        """Checks the fields and returns the adapter's structure."""
        native = _adapter.AhAttr()
        with refused_as("dgid", self.dgid):
            native.dgid = GID(self.dgid).raw
        native.is_global = bool(self.is_global)
        native.sgid_index = unsigned("sgid_index", self.sgid_index, 8)
        native.flow_label = unsigned("flow_label", self.flow_label, 20)
        native.hop_limit = unsigned("hop_limit", self.hop_limit, 8)
        native.traffic_class = unsigned("traffic_class", self.traffic_class, 8)
        native.sl = unsigned("sl", self.sl, 4)
        native.port = unsigned("port_num", self.port_num, 8)
        return native

    @classmethod
    def from_native(cls, native: _adapter.AhAttr) -> AHAttr:
        """Reads the adapter's structure."""
        return cls(
            dgid=GID(native.dgid),
            sgid_index=native.sgid_index,
            flow_label=native.flow_label,
            hop_limit=native.hop_limit,
            traffic_class=native.traffic_class,
            sl=native.sl,
            port_num=native.port,
            is_global=native.is_global,
        )


@dataclass(frozen=True)
class QPCap:
    """Sizes of a queue pair (struct ibv_qp_cap), in work requests, entries and bytes."""

    max_send_wr: int = 0
    max_recv_wr: int = 0
    max_send_sge: int = 1
    max_recv_sge: int = 1
    max_inline_data: int = 0

    @classmethod
    def from_native(cls, native: _adapter.QpCap) -> QPCap:
        """Reads the adapter's structure."""
        return cls(
            max_send_wr=native.max_send_wr,
            max_recv_wr=native.max_recv_wr,
            max_send_sge=native.max_send_sge,
            max_recv_sge=native.max_recv_sge,
            max_inline_data=native.max_inline_data,
        )


# Bit of the mask and width of each attribute of a queue pair that is a plain number; the adapter
# has the narrower rules, which depend on states and ports.
_QP_NUMBERS: dict[str, tuple[QPAttrMask, int]] = {
    "qp_access_flags": (QPAttrMask.ACCESS_FLAGS, 32),
    "pkey_index": (QPAttrMask.PKEY_INDEX, 16),
    "port_num": (QPAttrMask.PORT, 8),
    "qkey": (QPAttrMask.QKEY, 32),
    "path_mtu": (QPAttrMask.PATH_MTU, 8),
    "timeout": (QPAttrMask.TIMEOUT, 8),
    "retry_cnt": (QPAttrMask.RETRY_CNT, 8),
    "rnr_retry": (QPAttrMask.RNR_RETRY, 8),
    "rq_psn": (QPAttrMask.RQ_PSN, 32),
    "max_rd_atomic": (QPAttrMask.MAX_QP_RD_ATOMIC, 8),
    "min_rnr_timer": (QPAttrMask.MIN_RNR_TIMER, 8),
    "sq_psn": (QPAttrMask.SQ_PSN, 32),
    "max_dest_rd_atomic": (QPAttrMask.MAX_DEST_RD_ATOMIC, 8),
    "dest_qp_num": (QPAttrMask.DEST_QPN, 24),
}
# What a code can be at most, whatever the width of its field.
_CODES = {"timeout": 31, "retry_cnt": 7, "rnr_retry": 7, "min_rnr_timer": 31}
_QP_STATES = {"qp_state": QPAttrMask.STATE, "cur_qp_state": QPAttrMask.CUR_STATE}
_QP_OTHERS = {
    "ah_attr": QPAttrMask.AV,
    "alt_ah_attr": QPAttrMask.ALT_PATH,
    "alt_pkey_index": QPAttrMask.ALT_PATH,
    "alt_timeout": QPAttrMask.ALT_PATH,
    "path_mig_state": QPAttrMask.PATH_MIG_STATE,
    "en_sqd_async_notify": QPAttrMask.EN_SQD_ASYNC_NOTIFY,
}


def _demand_code(path_mtu: int) -> None:
    """Tells who gives a path MTU in bytes that its code is wanted."""
    for mtu in Mtu:
        if path_mtu == 128 << mtu:
            rule = f"must be a code, not bytes: Mtu.{mtu.name}, which is {mtu.value}"
            raise VerbsError(errno.EINVAL, "path_mtu", path_mtu, rule)


@dataclass
class QPAttr:
    """Attributes of a queue pair (struct ibv_qp_attr), under its names.

    Codes are the specification's: `timeout` is 4.096 us x 2^timeout and 0 waits for ever,
    `min_rnr_timer` is IBTA's table 45, `rnr_retry` 7 is without end. The alternate path is
    `alt_ah_attr` with `alt_pkey_index` and `alt_timeout`, 268 ms unless given.
    """

    qp_state: QPState = QPState.RESET
    cur_qp_state: QPState = QPState.RESET
    path_mtu: Mtu = Mtu.MTU_1024
    path_mig_state: MigState = MigState.MIGRATED
    qkey: int = 0
    rq_psn: int = 0
    sq_psn: int = 0
    dest_qp_num: int = 0
    qp_access_flags: Access = Access(0)  # noqa: RUF009
    ah_attr: AHAttr | None = None
    alt_ah_attr: AHAttr | None = None
    pkey_index: int = 0
    alt_pkey_index: int = 0
    alt_timeout: int = 16
    en_sqd_async_notify: bool = False
    sq_draining: bool = False
    max_rd_atomic: int = 0
    max_dest_rd_atomic: int = 0
    min_rnr_timer: int = 0
    port_num: int = 1
    timeout: int = 0
    retry_cnt: int = 0
    rnr_retry: int = 0
    cap: QPCap = field(default_factory=QPCap)

    def to_native(self, mask: int) -> _adapter.QpAttr:
        """Checks the attributes that `mask` selects and returns the adapter's structure."""
        native = _adapter.QpAttr()
        for name, (bit, bits) in _QP_NUMBERS.items():
            if mask & bit:
                value = getattr(self, name)
                if name == "path_mtu":
                    _demand_code(value)
                setattr(native, name, unsigned(name, value, bits, most=_CODES.get(name)))
        for name, bit in _QP_STATES.items():
            if mask & bit:
                setattr(native, name, QPState(unsigned(name, getattr(self, name), 8, most=6)))
        if mask & QPAttrMask.PATH_MIG_STATE:
            native.path_mig_state = MigState(
                unsigned("path_mig_state", self.path_mig_state, 8, most=2)
            )
        if mask & QPAttrMask.AV:
            native.ah_attr = instance("ah_attr", self.ah_attr, AHAttr).to_native()
        if mask & QPAttrMask.ALT_PATH:
            native.alt_ah_attr = instance("alt_ah_attr", self.alt_ah_attr, AHAttr).to_native()
            native.alt_port_num = native.alt_ah_attr.port
            native.alt_pkey_index = unsigned("alt_pkey_index", self.alt_pkey_index, 16)
            native.alt_timeout = unsigned("alt_timeout", self.alt_timeout, 8, most=31)
        native.en_sqd_async_notify = bool(self.en_sqd_async_notify)
        return native

    @classmethod
    def from_native(cls, native: _adapter.QpAttr) -> QPAttr:
        """Reads the adapter's structure."""
        numbers = {name: getattr(native, name) for name in _QP_NUMBERS}
        numbers["path_mtu"] = Mtu(native.path_mtu)
        numbers["qp_access_flags"] = Access(native.qp_access_flags)
        return cls(
            **numbers,
            qp_state=native.qp_state,
            cur_qp_state=native.cur_qp_state,
            path_mig_state=native.path_mig_state,
            ah_attr=AHAttr.from_native(native.ah_attr),
            alt_ah_attr=AHAttr.from_native(native.alt_ah_attr),
            alt_pkey_index=native.alt_pkey_index,
            alt_timeout=native.alt_timeout,
            en_sqd_async_notify=native.en_sqd_async_notify,
            sq_draining=native.sq_draining,
            cap=QPCap.from_native(native.cap),
        )


# The bit that a keyword of modify() sets.
QP_ATTR_MASK: dict[str, QPAttrMask] = (
    {name: bit for name, (bit, _) in _QP_NUMBERS.items()} | _QP_STATES | _QP_OTHERS
)


# Of several attributes with one bit, the first.
_NAME_OF_BIT = {bit: name for name, bit in reversed(QP_ATTR_MASK.items())}


def refused_attributes(refusal: VerbsError, mask: int) -> VerbsError:
    """The refusal of a mask, which tells of the bits at fault, with the names of the attributes."""
    at_fault = refusal.value if isinstance(refusal.value, int) else 0
    names = [name for bit, name in _NAME_OF_BIT.items() if at_fault & bit]
    rule = f"{refusal.rule}: {', '.join(sorted(names))}" if names else refusal.rule
    return VerbsError(refusal.errno, refusal.argument, mask, rule)


@dataclass(frozen=True)
class QPInitAttr:
    """How a queue pair was made (struct ibv_qp_init_attr); `cap` is what was really given."""

    qp_type: QPType
    sq_sig_all: bool
    cap: QPCap


@dataclass(frozen=True)
class SRQAttr:
    """Attributes of a shared receive queue (struct ibv_srq_attr)."""

    max_wr: int
    max_sge: int = 1
    srq_limit: int = 0

    def to_native(self) -> _adapter.SrqAttr:
        """Checks the fields and returns the adapter's structure."""
        native = _adapter.SrqAttr()
        native.max_wr = unsigned("max_wr", self.max_wr, 32)
        native.max_sge = unsigned("max_sge", self.max_sge, 32)
        native.srq_limit = unsigned("srq_limit", self.srq_limit, 32)
        return native

    @classmethod
    def from_native(cls, native: _adapter.SrqAttr) -> SRQAttr:
        """Reads the adapter's structure."""
        return cls(max_wr=native.max_wr, max_sge=native.max_sge, srq_limit=native.srq_limit)
