"""RDMA verbs on the real RoCEv2 wire, on any Linux machine: an HCA in software.

`softhca.open()` gives a device; everything else is made from it.
"""

from softhca.completion.cqe import Cqe
from softhca.completion.drain import drain_qp, drain_rq, drain_sq
from softhca.completion.poll_context import PollContext
from softhca.invalidation.cache import CacheStatistics, RegistrationCache
from softhca.invalidation.cached_region import CachedRegion
from softhca.invalidation.channel import InvalidationChannel
from softhca.invalidation.events import InvalidationEvent, InvalidationKind
from softhca.verbs.advice import Advice
from softhca.verbs.ah import AH
from softhca.verbs.attributes import (
    AHAttr,
    DeviceAttr,
    PortAttr,
    QPAttr,
    QPCap,
    QPInitAttr,
    SRQAttr,
)
from softhca.verbs.callback_cq import CallbackCQ, process_cq_direct
from softhca.verbs.comp_channel import CompChannel
from softhca.verbs.congestion import Dcqcn
from softhca.verbs.counters import Counters
from softhca.verbs.cq import CQ
from softhca.verbs.device import Device
from softhca.verbs.dm import DM, DeviceMR
from softhca.verbs.enums import (
    Access,
    AtomicCap,
    DeviceCap,
    EventType,
    FlushLevel,
    FlushType,
    IcrcLevel,
    KeyState,
    MigState,
    MrType,
    Mtu,
    MwType,
    NotifyFlags,
    PortState,
    QPAttrMask,
    QPState,
    QPType,
    Reason,
    SendFlags,
    SRQAttrMask,
    WcFlags,
    WcOpcode,
    WcStatus,
    WrOpcode,
)
from softhca.verbs.errors import VerbsError
from softhca.verbs.events import AsyncEvent
from softhca.verbs.fast_mr import FastMR
from softhca.verbs.gid import GID
from softhca.verbs.mr import MR, Sge
from softhca.verbs.mr_buffer import MRBuffer
from softhca.verbs.mw import MW, BindInfo, inc_rkey

# Not among `__all__`, since `from softhca import *` shall leave the builtin what it is.
from softhca.verbs.opening import open as open
from softhca.verbs.pd import PD
from softhca.verbs.qp import QP
from softhca.verbs.qp_info import QP_INFO_BYTES, QPInfo
from softhca.verbs.records import (
    RECV_DTYPE,
    RECV_FORMAT,
    SEND_DTYPE,
    SEND_FORMAT,
    WC_DTYPE,
    WC_FORMAT,
    CompletionBuffer,
)
from softhca.verbs.remote_memory import RemoteMemory
from softhca.verbs.srq import SRQ
from softhca.verbs.wc import WC, CompletionError
from softhca.verbs.wr import (
    CmpSwap,
    FetchAdd,
    Read,
    Recv,
    Send,
    SendImm,
    SendInv,
    SendRequest,
    Write,
    WriteImm,
)
from softhca.verbs.wr_memory import BindMw, LocalInv, RegMr
from softhca.verbs.wr_more import AtomicWrite, Flush, MaskedCmpSwap, MaskedFetchAdd
from softhca.verbs.xrcd import XRCD

__version__ = "0.1.0"

__all__ = [
    "AH",
    "CQ",
    "DM",
    "GID",
    "MR",
    "MW",
    "PD",
    "QP",
    "QP_INFO_BYTES",
    "RECV_DTYPE",
    "RECV_FORMAT",
    "SEND_DTYPE",
    "SEND_FORMAT",
    "SRQ",
    "WC",
    "WC_DTYPE",
    "WC_FORMAT",
    "XRCD",
    "AHAttr",
    "Access",
    "Advice",
    "AsyncEvent",
    "AtomicCap",
    "AtomicWrite",
    "BindInfo",
    "BindMw",
    "CacheStatistics",
    "CachedRegion",
    "CallbackCQ",
    "CmpSwap",
    "CompChannel",
    "CompletionBuffer",
    "CompletionError",
    "Counters",
    "Cqe",
    "Dcqcn",
    "Device",
    "DeviceAttr",
    "DeviceCap",
    "DeviceMR",
    "EventType",
    "FastMR",
    "FetchAdd",
    "Flush",
    "FlushLevel",
    "FlushType",
    "IcrcLevel",
    "InvalidationChannel",
    "InvalidationEvent",
    "InvalidationKind",
    "KeyState",
    "LocalInv",
    "MRBuffer",
    "MaskedCmpSwap",
    "MaskedFetchAdd",
    "MigState",
    "MrType",
    "Mtu",
    "MwType",
    "NotifyFlags",
    "PollContext",
    "PortAttr",
    "PortState",
    "QPAttr",
    "QPAttrMask",
    "QPCap",
    "QPInfo",
    "QPInitAttr",
    "QPState",
    "QPType",
    "Read",
    "Reason",
    "Recv",
    "RegMr",
    "RegistrationCache",
    "RemoteMemory",
    "SRQAttr",
    "SRQAttrMask",
    "Send",
    "SendFlags",
    "SendImm",
    "SendInv",
    "SendRequest",
    "Sge",
    "VerbsError",
    "WcFlags",
    "WcOpcode",
    "WcStatus",
    "WrOpcode",
    "Write",
    "WriteImm",
    "drain_qp",
    "drain_rq",
    "drain_sq",
    "inc_rkey",
    "process_cq_direct",
]
