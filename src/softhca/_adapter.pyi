"""The native adapter. Private: `softhca` is the public face of it."""

from collections.abc import Sequence
import enum
from typing import Any, Final, TypeVar, overload


def raise_as(cls: type) -> None:
    """
    Names the class whose constructor takes (errno, argument, value, rule, bad_wr).
    """

class QPType(enum.IntEnum):
    """Service type of a queue pair."""

    RC = 2

    UC = 3

    UD = 4

    XRC_SEND = 9

    XRC_RECV = 10

class QPState(enum.IntEnum):
    """State of a queue pair (IBTA 10.3.1)."""

    RESET = 0

    INIT = 1

    RTR = 2

    RTS = 3

    SQD = 4

    SQE = 5

    ERR = 6

class MigState(enum.IntEnum):
    """Path migration state."""

    MIGRATED = 0

    REARM = 1

    ARMED = 2

class Mtu(enum.IntEnum):
    """Path MTU code."""

    MTU_256 = 1

    MTU_512 = 2

    MTU_1024 = 3

    MTU_2048 = 4

    MTU_4096 = 5

class WrOpcode(enum.IntEnum):
    """Operation of a work request."""

    RDMA_WRITE = 0

    RDMA_WRITE_WITH_IMM = 1

    SEND = 2

    SEND_WITH_IMM = 3

    RDMA_READ = 4

    ATOMIC_CMP_AND_SWP = 5

    ATOMIC_FETCH_AND_ADD = 6

    LOCAL_INV = 7

    BIND_MW = 8

    SEND_WITH_INV = 9

    MASKED_ATOMIC_CMP_AND_SWP = 12

    MASKED_ATOMIC_FETCH_AND_ADD = 13

    FLUSH = 14

    ATOMIC_WRITE = 15

    REG_MR = 32

class SendFlags(enum.IntFlag):
    """Flags of a send work request."""

    FENCE = 1

    SIGNALED = 2

    SOLICITED = 4

    INLINE = 8

class WcStatus(enum.IntEnum):
    """Status of a completion."""

    SUCCESS = 0

    LOC_LEN_ERR = 1

    LOC_QP_OP_ERR = 2

    LOC_EEC_OP_ERR = 3

    LOC_PROT_ERR = 4

    WR_FLUSH_ERR = 5

    MW_BIND_ERR = 6

    BAD_RESP_ERR = 7

    LOC_ACCESS_ERR = 8

    REM_INV_REQ_ERR = 9

    REM_ACCESS_ERR = 10

    REM_OP_ERR = 11

    RETRY_EXC_ERR = 12

    RNR_RETRY_EXC_ERR = 13

    LOC_RDD_VIOL_ERR = 14

    REM_INV_RD_REQ_ERR = 15

    REM_ABORT_ERR = 16

    INV_EECN_ERR = 17

    INV_EEC_STATE_ERR = 18

    FATAL_ERR = 19

    RESP_TIMEOUT_ERR = 20

    GENERAL_ERR = 21

class WcOpcode(enum.IntEnum):
    """Operation that a completion reports."""

    SEND = 0

    RDMA_WRITE = 1

    RDMA_READ = 2

    COMP_SWAP = 3

    FETCH_ADD = 4

    BIND_MW = 5

    LOCAL_INV = 6

    FLUSH = 8

    ATOMIC_WRITE = 9

    REG_MR = 10

    MASKED_COMP_SWAP = 11

    MASKED_FETCH_ADD = 12

    RECV = 128

    RECV_RDMA_WITH_IMM = 129

class WcFlags(enum.IntFlag):
    """What a completion carries."""

    GRH = 1

    WITH_IMM = 2

    WITH_INV = 8

class Reason(enum.IntEnum):
    """Why a work request or packet failed."""

    NONE = 0

    UNKNOWN_KEY = 1

    OTHER_PD = 2

    OUT_OF_BOUNDS = 3

    MISSING_RIGHT = 4

    QP_MISSING_RIGHT = 5

    MISALIGNED = 6

    TOO_LONG = 7

    BAD_LENGTH = 8

    BAD_SEQUENCE = 9

    UNSUPPORTED = 10

    TOO_MANY_READS = 11

    REFUSED_INVALIDATE = 12

    RETRIES_EXHAUSTED = 13

    RNR_EXHAUSTED = 14

    NAK_INVALID_REQUEST = 15

    NAK_ACCESS = 16

    NAK_OPERATIONAL = 17

    BAD_RESPONSE = 18

    FLUSHED = 19

    BAD_ADDRESS_HANDLE = 20

    MEMORY_GONE = 21

    BAD_SRQ = 22

    CQ_OVERRUN = 23

    LOCAL_RECEIVE_BUFFER = 24

    OTHER_QP = 25

    WINDOW_KEY = 26

    KEY_NOT_VALID = 27

    NO_BIND_RIGHT = 28

    WINDOW_WRITES = 29

    NOT_FREE = 30

    EMPTY_BIND = 31

    KEY_INDEX = 32

    ZERO_BASED_REGION = 33

    ZERO_BASED_WINDOW = 34

    WRONG_WINDOW = 35

    WINDOWS_BOUND = 36

    NOT_INVALIDATABLE = 37

    NOT_MAPPED = 38

    BAD_ACCESS = 39

    ATOMIC_LENGTH = 40

def reason_text(reason: Reason) -> str:
    """A clause that says the reason."""

class Access(enum.IntFlag):
    """Rights that a memory region, window or queue pair gives."""

    LOCAL_WRITE = 1

    REMOTE_WRITE = 2

    REMOTE_READ = 4

    REMOTE_ATOMIC = 8

    MW_BIND = 16

    ZERO_BASED = 32

    ON_DEMAND = 64

    HUGETLB = 128

    FLUSH_GLOBAL = 256

    FLUSH_PERSISTENT = 512

    RELAXED_ORDERING = 1048576

class MwType(enum.IntEnum):
    """Type of a memory window."""

    TYPE_1 = 1

    TYPE_2 = 2

class MrType(enum.IntEnum):
    """How the pieces of a region for fast registration may lie."""

    MEM_REG = 0

    SG_GAPS = 1

class KeyState(enum.IntEnum):
    """
    What a key of a window, or of a region for fast registration, stands for.
    """

    INVALID = 0

    FREE = 1

    VALID = 2

class QPAttrMask(enum.IntFlag):
    """Which attributes a modify changes."""

    STATE = 1

    CUR_STATE = 2

    EN_SQD_ASYNC_NOTIFY = 4

    ACCESS_FLAGS = 8

    PKEY_INDEX = 16

    PORT = 32

    QKEY = 64

    AV = 128

    PATH_MTU = 256

    TIMEOUT = 512

    RETRY_CNT = 1024

    RNR_RETRY = 2048

    RQ_PSN = 4096

    MAX_QP_RD_ATOMIC = 8192

    ALT_PATH = 16384

    MIN_RNR_TIMER = 32768

    SQ_PSN = 65536

    MAX_DEST_RD_ATOMIC = 131072

    PATH_MIG_STATE = 262144

    CAP = 524288

    DEST_QPN = 1048576

class SRQAttrMask(enum.IntFlag):
    """Which attributes of an SRQ a modify changes."""

    MAX_WR = 1

    LIMIT = 2

class EventType(enum.IntEnum):
    """Kind of an asynchronous event."""

    CQ_ERR = 0

    QP_FATAL = 1

    QP_REQ_ERR = 2

    QP_ACCESS_ERR = 3

    COMM_EST = 4

    SQ_DRAINED = 5

    PATH_MIG = 6

    PATH_MIG_ERR = 7

    DEVICE_FATAL = 8

    PORT_ACTIVE = 9

    PORT_ERR = 10

    LID_CHANGE = 11

    PKEY_CHANGE = 12

    SM_CHANGE = 13

    SRQ_ERR = 14

    SRQ_LIMIT_REACHED = 15

    QP_LAST_WQE_REACHED = 16

    CLIENT_REREGISTER = 17

    GID_CHANGE = 18

class AhAttr:
    def __init__(self) -> None: ...

    @property
    def is_global(self) -> bool: ...

    @is_global.setter
    def is_global(self, arg: bool, /) -> None: ...

    @property
    def dgid(self) -> bytes: ...

    @dgid.setter
    def dgid(self, arg: bytes, /) -> None: ...

    @property
    def sgid_index(self) -> int: ...

    @sgid_index.setter
    def sgid_index(self, arg: int, /) -> None: ...

    @property
    def flow_label(self) -> int: ...

    @flow_label.setter
    def flow_label(self, arg: int, /) -> None: ...

    @property
    def hop_limit(self) -> int: ...

    @hop_limit.setter
    def hop_limit(self, arg: int, /) -> None: ...

    @property
    def traffic_class(self) -> int: ...

    @traffic_class.setter
    def traffic_class(self, arg: int, /) -> None: ...

    @property
    def sl(self) -> int: ...

    @sl.setter
    def sl(self, arg: int, /) -> None: ...

    @property
    def port(self) -> int: ...

    @port.setter
    def port(self, arg: int, /) -> None: ...

class QpCap:
    def __init__(self) -> None: ...

    @property
    def max_send_wr(self) -> int: ...

    @max_send_wr.setter
    def max_send_wr(self, arg: int, /) -> None: ...

    @property
    def max_recv_wr(self) -> int: ...

    @max_recv_wr.setter
    def max_recv_wr(self, arg: int, /) -> None: ...

    @property
    def max_send_sge(self) -> int: ...

    @max_send_sge.setter
    def max_send_sge(self, arg: int, /) -> None: ...

    @property
    def max_recv_sge(self) -> int: ...

    @max_recv_sge.setter
    def max_recv_sge(self, arg: int, /) -> None: ...

    @property
    def max_inline_data(self) -> int: ...

    @max_inline_data.setter
    def max_inline_data(self, arg: int, /) -> None: ...

class QpInit:
    def __init__(self) -> None: ...

    @property
    def type(self) -> QPType: ...

    @type.setter
    def type(self, arg: QPType, /) -> None: ...

    @property
    def pd(self) -> int: ...

    @pd.setter
    def pd(self, arg: int, /) -> None: ...

    @property
    def send_cq(self) -> int: ...

    @send_cq.setter
    def send_cq(self, arg: int, /) -> None: ...

    @property
    def recv_cq(self) -> int: ...

    @recv_cq.setter
    def recv_cq(self, arg: int, /) -> None: ...

    @property
    def srq(self) -> int: ...

    @srq.setter
    def srq(self, arg: int, /) -> None: ...

    @property
    def xrcd(self) -> int: ...

    @xrcd.setter
    def xrcd(self, arg: int, /) -> None: ...

    @property
    def sq_sig_all(self) -> bool: ...

    @sq_sig_all.setter
    def sq_sig_all(self, arg: bool, /) -> None: ...

    @property
    def cap(self) -> QpCap: ...

    @cap.setter
    def cap(self, arg: QpCap, /) -> None: ...

class QpAttr:
    def __init__(self) -> None: ...

    @property
    def qp_state(self) -> QPState: ...

    @qp_state.setter
    def qp_state(self, arg: QPState, /) -> None: ...

    @property
    def cur_qp_state(self) -> QPState: ...

    @cur_qp_state.setter
    def cur_qp_state(self, arg: QPState, /) -> None: ...

    @property
    def path_mtu(self) -> int: ...

    @path_mtu.setter
    def path_mtu(self, arg: int, /) -> None: ...

    @property
    def path_mig_state(self) -> MigState: ...

    @path_mig_state.setter
    def path_mig_state(self, arg: MigState, /) -> None: ...

    @property
    def qkey(self) -> int: ...

    @qkey.setter
    def qkey(self, arg: int, /) -> None: ...

    @property
    def rq_psn(self) -> int: ...

    @rq_psn.setter
    def rq_psn(self, arg: int, /) -> None: ...

    @property
    def sq_psn(self) -> int: ...

    @sq_psn.setter
    def sq_psn(self, arg: int, /) -> None: ...

    @property
    def dest_qp_num(self) -> int: ...

    @dest_qp_num.setter
    def dest_qp_num(self, arg: int, /) -> None: ...

    @property
    def qp_access_flags(self) -> int: ...

    @qp_access_flags.setter
    def qp_access_flags(self, arg: int, /) -> None: ...

    @property
    def cap(self) -> QpCap: ...

    @cap.setter
    def cap(self, arg: QpCap, /) -> None: ...

    @property
    def ah_attr(self) -> AhAttr: ...

    @ah_attr.setter
    def ah_attr(self, arg: AhAttr, /) -> None: ...

    @property
    def alt_ah_attr(self) -> AhAttr: ...

    @alt_ah_attr.setter
    def alt_ah_attr(self, arg: AhAttr, /) -> None: ...

    @property
    def pkey_index(self) -> int: ...

    @pkey_index.setter
    def pkey_index(self, arg: int, /) -> None: ...

    @property
    def alt_pkey_index(self) -> int: ...

    @alt_pkey_index.setter
    def alt_pkey_index(self, arg: int, /) -> None: ...

    @property
    def en_sqd_async_notify(self) -> bool: ...

    @en_sqd_async_notify.setter
    def en_sqd_async_notify(self, arg: bool, /) -> None: ...

    @property
    def sq_draining(self) -> bool: ...

    @sq_draining.setter
    def sq_draining(self, arg: bool, /) -> None: ...

    @property
    def max_rd_atomic(self) -> int: ...

    @max_rd_atomic.setter
    def max_rd_atomic(self, arg: int, /) -> None: ...

    @property
    def max_dest_rd_atomic(self) -> int: ...

    @max_dest_rd_atomic.setter
    def max_dest_rd_atomic(self, arg: int, /) -> None: ...

    @property
    def min_rnr_timer(self) -> int: ...

    @min_rnr_timer.setter
    def min_rnr_timer(self, arg: int, /) -> None: ...

    @property
    def port_num(self) -> int: ...

    @port_num.setter
    def port_num(self, arg: int, /) -> None: ...

    @property
    def timeout(self) -> int: ...

    @timeout.setter
    def timeout(self, arg: int, /) -> None: ...

    @property
    def retry_cnt(self) -> int: ...

    @retry_cnt.setter
    def retry_cnt(self, arg: int, /) -> None: ...

    @property
    def rnr_retry(self) -> int: ...

    @rnr_retry.setter
    def rnr_retry(self, arg: int, /) -> None: ...

    @property
    def alt_port_num(self) -> int: ...

    @alt_port_num.setter
    def alt_port_num(self, arg: int, /) -> None: ...

    @property
    def alt_timeout(self) -> int: ...

    @alt_timeout.setter
    def alt_timeout(self, arg: int, /) -> None: ...

class SrqAttr:
    def __init__(self) -> None: ...

    @property
    def max_wr(self) -> int: ...

    @max_wr.setter
    def max_wr(self, arg: int, /) -> None: ...

    @property
    def max_sge(self) -> int: ...

    @max_sge.setter
    def max_sge(self, arg: int, /) -> None: ...

    @property
    def srq_limit(self) -> int: ...

    @srq_limit.setter
    def srq_limit(self, arg: int, /) -> None: ...

class PortAttr:
    @property
    def state(self) -> int: ...

    @property
    def max_mtu(self) -> int: ...

    @property
    def active_mtu(self) -> int: ...

    @property
    def gid_tbl_len(self) -> int: ...

    @property
    def pkey_tbl_len(self) -> int: ...

    @property
    def max_msg_sz(self) -> int: ...

    @property
    def bad_pkey_cntr(self) -> int: ...

    @property
    def qkey_viol_cntr(self) -> int: ...

class MrInfo:
    @property
    def handle(self) -> int: ...

    @property
    def lkey(self) -> int: ...

    @property
    def rkey(self) -> int: ...

class SendWr:
    """A work request for a send queue; immutable."""

    @property
    def wr_id(self) -> int: ...

    @property
    def opcode(self) -> WrOpcode: ...

    @property
    def send_flags(self) -> SendFlags: ...

    @property
    def immediate(self) -> int: ...

    @property
    def invalidate_rkey(self) -> int: ...

    @property
    def remote_address(self) -> int: ...

    @property
    def rkey(self) -> int: ...

    @property
    def compare_add(self) -> int: ...

    @property
    def swap(self) -> int: ...

    @property
    def remote_qpn(self) -> int: ...

    @property
    def remote_qkey(self) -> int: ...

    @property
    def xrc_srqn(self) -> int: ...

    @property
    def byte_count(self) -> int: ...

    @property
    def cqe(self) -> Any: ...

    @property
    def ah(self) -> Any: ...

    @property
    def _kept(self) -> tuple[object, ...]: ...

    def __init__(self, opcode: WrOpcode, sges: Sequence[tuple[int, int, int]], *, wr_id: int = 0, send_flags: int = 0, immediate: int = 0, invalidate_rkey: int = 0, remote_address: int = 0, rkey: int = 0, compare_add: int = 0, swap: int = 0, ah: int = 0, remote_qpn: int = 0, remote_qkey: int = 0, xrc_srqn: int = 0, memory: tuple[int, int, int, int, int, int, int] = (0, 0, 0, 0, 0, 0, 0), compare_mask: int = 0, swap_mask: int = 0, flush: tuple[int, int, int] = (0, 0, 0), kept: tuple[object, ...] = (), cqe: object | None = None, ah_object: object | None = None) -> None: ...

class RecvWr:
    """A work request for a receive queue; immutable."""

    @property
    def wr_id(self) -> int: ...

    @property
    def byte_count(self) -> int: ...

    @property
    def cqe(self) -> Any: ...

    @property
    def _kept(self) -> tuple[object, ...]: ...

    def __init__(self, sges: Sequence[tuple[int, int, int]], *, wr_id: int = 0, kept: tuple[object, ...] = (), cqe: object | None = None) -> None: ...

class Route:
    """The IP and UDP headers around a datagram."""

    def __init__(self, source: bytes, destination: bytes, *, udp_source_port: int = 49152, identification: int = 0, traffic_class: int = 0, hop_limit: int = 64, flow_label: int = 0) -> None: ...

    @property
    def source(self) -> bytes: ...

    @property
    def destination(self) -> bytes: ...

    @property
    def udp_source_port(self) -> int: ...

    @property
    def udp_destination_port(self) -> int: ...

    @property
    def identification(self) -> int: ...

    @property
    def traffic_class(self) -> int: ...

    @property
    def hop_limit(self) -> int: ...

    @property
    def flow_label(self) -> int: ...

def own_port(gid: bytes, place: int = 0) -> int:
    """
    One of the source ports by which adapters of our kind know who has this address.
    """

class Packet:
    """The headers behind UDP, and the payload."""

    def __init__(self) -> None: ...

    @property
    def problem(self) -> str: ...

    @property
    def opcode_name(self) -> str: ...

    @property
    def headers(self) -> list[str]: ...

    @property
    def opcode(self) -> int: ...

    @opcode.setter
    def opcode(self, arg: int, /) -> None: ...

    @property
    def solicited(self) -> bool: ...

    @solicited.setter
    def solicited(self, arg: bool, /) -> None: ...

    @property
    def migrated(self) -> bool: ...

    @migrated.setter
    def migrated(self, arg: bool, /) -> None: ...

    @property
    def pad_count(self) -> int: ...

    @pad_count.setter
    def pad_count(self, arg: int, /) -> None: ...

    @property
    def version(self) -> int: ...

    @version.setter
    def version(self, arg: int, /) -> None: ...

    @property
    def pkey(self) -> int: ...

    @pkey.setter
    def pkey(self, arg: int, /) -> None: ...

    @property
    def fecn(self) -> bool: ...

    @fecn.setter
    def fecn(self, arg: bool, /) -> None: ...

    @property
    def becn(self) -> bool: ...

    @becn.setter
    def becn(self, arg: bool, /) -> None: ...

    @property
    def destination_qpn(self) -> int: ...

    @destination_qpn.setter
    def destination_qpn(self, arg: int, /) -> None: ...

    @property
    def ack_request(self) -> bool: ...

    @ack_request.setter
    def ack_request(self, arg: bool, /) -> None: ...

    @property
    def psn(self) -> int: ...

    @psn.setter
    def psn(self, arg: int, /) -> None: ...

    @property
    def qkey(self) -> int: ...

    @qkey.setter
    def qkey(self, arg: int, /) -> None: ...

    @property
    def source_qpn(self) -> int: ...

    @source_qpn.setter
    def source_qpn(self, arg: int, /) -> None: ...

    @property
    def virtual_address(self) -> int: ...

    @virtual_address.setter
    def virtual_address(self, arg: int, /) -> None: ...

    @property
    def rkey(self) -> int: ...

    @rkey.setter
    def rkey(self, arg: int, /) -> None: ...

    @property
    def dma_length(self) -> int: ...

    @dma_length.setter
    def dma_length(self, arg: int, /) -> None: ...

    @property
    def syndrome(self) -> int: ...

    @syndrome.setter
    def syndrome(self, arg: int, /) -> None: ...

    @property
    def msn(self) -> int: ...

    @msn.setter
    def msn(self, arg: int, /) -> None: ...

    @property
    def atomic_address(self) -> int: ...

    @atomic_address.setter
    def atomic_address(self, arg: int, /) -> None: ...

    @property
    def atomic_rkey(self) -> int: ...

    @atomic_rkey.setter
    def atomic_rkey(self, arg: int, /) -> None: ...

    @property
    def swap_add(self) -> int: ...

    @swap_add.setter
    def swap_add(self, arg: int, /) -> None: ...

    @property
    def compare(self) -> int: ...

    @compare.setter
    def compare(self, arg: int, /) -> None: ...

    @property
    def compare_mask(self) -> int: ...

    @compare_mask.setter
    def compare_mask(self, arg: int, /) -> None: ...

    @property
    def swap_mask(self) -> int: ...

    @swap_mask.setter
    def swap_mask(self, arg: int, /) -> None: ...

    @property
    def placement_type(self) -> int: ...

    @placement_type.setter
    def placement_type(self, arg: int, /) -> None: ...

    @property
    def selectivity(self) -> int: ...

    @selectivity.setter
    def selectivity(self, arg: int, /) -> None: ...

    @property
    def atomic_original(self) -> int: ...

    @atomic_original.setter
    def atomic_original(self, arg: int, /) -> None: ...

    @property
    def immediate(self) -> int: ...

    @immediate.setter
    def immediate(self, arg: int, /) -> None: ...

    @property
    def invalidate_rkey(self) -> int: ...

    @invalidate_rkey.setter
    def invalidate_rkey(self, arg: int, /) -> None: ...

    @property
    def xrc_srqn(self) -> int: ...

    @xrc_srqn.setter
    def xrc_srqn(self, arg: int, /) -> None: ...

    @property
    def payload(self) -> bytes:
        """Setting it sets the pad count."""

    @payload.setter
    def payload(self, arg: bytes, /) -> None: ...

    @staticmethod
    def decode(datagram: bytes) -> Packet: ...

    def encode(self, route: Route) -> bytes:
        """The datagram, ICRC included."""

class IcrcLevel(enum.IntEnum):
    """How much of an ICRC is demanded."""

    STRICT = 0

    SOLVE = 1

    OFF = 2

class IcrcVerdict:
    @property
    def good(self) -> bool: ...

    @property
    def solved(self) -> bool: ...

    @property
    def identification(self) -> int: ...

    @property
    def dont_fragment(self) -> bool: ...

def icrc_of(route: Route, transport: bytes) -> int:
    """ICRC of BTH to pad, without the ICRC itself."""

def check_icrc(route: Route, datagram: bytes, level: IcrcLevel) -> IcrcVerdict:
    """Checks BTH to ICRC."""

def crc32(bytes: bytes, crc: int = 0) -> int:
    """CRC-32 of Ethernet, in zlib's convention."""

def crc32_by_table(bytes: bytes, crc: int = 0) -> int:
    """The same, by tables alone."""

def crc32_routine() -> str:
    """Name of the routine that crc32 uses on this CPU."""

def encode_ip_udp(route: Route, datagram_bytes: int, datagram: bytes | None = None) -> bytes:
    """
    IP and UDP headers for so many bytes; over IPv6 with the UDP checksum, if they are given.
    """

def encode_grh(route: Route, datagram_bytes: int) -> bytes:
    """The 40 bytes in front of a UD payload."""

def parse_ip_udp(packet: bytes) -> tuple[Route, bytes, bool] | None:
    """(route, datagram, don't fragment) of an IP packet; None if not UDP."""

def opcode_name(opcode: int) -> str: ...

def header_names(opcode: int) -> list[str]: ...

def rnr_delay_ns(timer_code: int) -> int: ...

class DlpackExport:
    """A tensor that is held through DLPack."""

    def __init__(self, capsule: object) -> None: ...

    @property
    def address(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def contiguous(self) -> bool: ...

    @property
    def read_only(self) -> bool: ...

    def release(self) -> None: ...

def buffer_address(object: object) -> int:
    """
    Address of a contiguous buffer; it stays only while the caller holds an export.
    """

def advise_memory(address: int, length: int, advice: int) -> None: ...

def share_buffer(address: int, length: int, fd: int) -> None:
    """This memory is that file: adapters of this host may map it."""

def unshare_buffer(fd: int) -> None: ...

def buffer_key(object: object) -> tuple[int, int, int]:
    """
    Address, bytes, and the rights that a contiguous buffer is registered with unless others are asked for.
    """

class FaultAction(enum.IntEnum):
    """What happens to a packet."""

    DROP = 0

    DUPLICATE = 1

    DELAY = 2

    REORDER = 3

    CORRUPT = 4

    TRUNCATE = 5

    MARK = 6

    CNP = 7

    ANSWER = 8

    TELL = 9

    SCRIPT = 10

class CorruptPart(enum.IntEnum):
    """Where damage goes."""

    ANYWHERE = 0

    HEADERS = 1

    PAYLOAD = 2

    ICRC = 3

class FaultRule:
    """Which packets, when, and what happens to them."""

    def __init__(self) -> None: ...

    @property
    def name(self) -> str: ...

    @name.setter
    def name(self, arg: str, /) -> None: ...

    @property
    def action(self) -> FaultAction: ...

    @action.setter
    def action(self, arg: FaultAction, /) -> None: ...

    @property
    def probability(self) -> float: ...

    @probability.setter
    def probability(self, arg: float, /) -> None: ...

    @property
    def nth(self) -> list[int]: ...

    @nth.setter
    def nth(self, arg: Sequence[int], /) -> None: ...

    @property
    def every(self) -> int: ...

    @every.setter
    def every(self, arg: int, /) -> None: ...

    @property
    def times(self) -> int: ...

    @times.setter
    def times(self, arg: int, /) -> None: ...

    @property
    def delay_ns(self) -> int: ...

    @delay_ns.setter
    def delay_ns(self, arg: int, /) -> None: ...

    @property
    def most_delay_ns(self) -> int: ...

    @most_delay_ns.setter
    def most_delay_ns(self, arg: int, /) -> None: ...

    @property
    def count(self) -> int: ...

    @count.setter
    def count(self, arg: int, /) -> None: ...

    @property
    def part(self) -> CorruptPart: ...

    @part.setter
    def part(self, arg: CorruptPart, /) -> None: ...

    @property
    def mend_icrc(self) -> bool: ...

    @mend_icrc.setter
    def mend_icrc(self, arg: bool, /) -> None: ...

    @property
    def syndrome(self) -> int: ...

    @syndrome.setter
    def syndrome(self, arg: int, /) -> None: ...

    @property
    def seed(self) -> int: ...

    @seed.setter
    def seed(self, arg: int, /) -> None: ...

    def set_opcodes(self, opcodes: Sequence[int]) -> None: ...

    def set_only(self, only: Sequence[int]) -> None: ...

    def set_predicate(self, callable: object) -> None: ...

    def set_script(self, callable: object) -> None: ...

    def set_sources(self, gids: Sequence[bytes]) -> None: ...

    def set_destinations(self, gids: Sequence[bytes]) -> None: ...

    def set_hosts(self, *, source: int, destination: int) -> None: ...

    def set_numbers(self, *, qpn: int, first_psn: int, last_psn: int, min_bytes: int, max_bytes: int, from_ns: int, until_ns: int, link: int, direction: int) -> None: ...

class SharedFaults:
    """Rules of the links of real adapters."""

    def __init__(self) -> None: ...

    def add_fault(self, rule: FaultRule) -> int: ...

    def remove_fault(self, number: int) -> None: ...

    def tally(self, number: int) -> tuple[int, int]: ...

    def strikes(self, number: int) -> list[int]: ...

class Hca:
    """One adapter under its lock, with a driver or without."""

    def __init__(self, *, gids: Sequence[bytes], seed: int, active_mtu: int, node_guid: int, udp_source_ports: Sequence[int], icrc_level: IcrcLevel, pkeys: Sequence[int], retry_early: bool, limits: dict[str, int], windows_2a: bool = False, congestion: dict[str, int] = {}) -> None:
        """
        An adapter without a driver: the caller moves its packets and its time.
        """

    @staticmethod
    def limit_bits() -> dict[str, int]:
        """How many bits each limit has, by its name."""

    @staticmethod
    def open(*, address: str, capture_path: str, send_faults: tuple[float, float, float, float], receive_faults: tuple[float, float, float, float], fault_seed: int, seed: int, icrc_level: IcrcLevel, max_mtu: int, limits: dict[str, int], windows_2a: bool = False, trains: bool = True, shortcut: bool = True, fault_rules: SharedFaults | None = None, congestion: dict[str, int] = {}) -> Hca:
        """An adapter on the wire, with a driver of its own."""

    def may_close(self) -> None: ...

    def close(self) -> None: ...

    def next_async_event(self) -> tuple[EventType, int] | None: ...

    @property
    def clock_ns(self) -> int: ...

    @property
    def is_simulated(self) -> bool: ...

    @property
    def async_event_fd(self) -> int: ...

    @property
    def gids(self) -> list[bytes]: ...

    @property
    def pkeys(self) -> list[int]: ...

    @property
    def node_guid(self) -> int: ...

    def limits(self) -> dict[str, int]: ...

    @property
    def identity(self) -> int: ...

    @property
    def windows_2a(self) -> bool: ...

    def query_port(self) -> PortAttr: ...

    def counters(self) -> dict[str, int]: ...

    def qp_counters(self, qpn: int) -> dict[str, int]: ...

    def link_counters(self) -> dict[str, object]: ...

    def alloc_pd(self) -> int: ...

    def dealloc_pd(self, pd: int) -> None: ...

    def reg_mr(self, pd: int, address: int, length: int, iova: int, access: int) -> MrInfo: ...

    def dereg_mr(self, mr: int) -> None: ...

    def rereg_mr(self, mr: int, flags: int, pd: int, address: int, length: int, iova: int, access: int) -> MrInfo: ...

    def alloc_mr(self, pd: int, mr_type: MrType, max_sg: int) -> MrInfo: ...

    def map_mr_sg(self, mr: int, ranges: Sequence[tuple[int, int]], page_size: int, iova: int | None, writable: bool) -> None: ...

    def alloc_mw(self, pd: int, mw_type: MwType) -> int: ...

    def dealloc_mw(self, mw: int) -> None: ...

    def bind_mw(self, qpn: int, mw: int, bind: tuple[int, int, int, int], wr_id: int, send_flags: int) -> int:
        """
        Type 1. `bind` is (lkey, address, length, access); returns the new key.
        """

    def query_key(self, handle: int) -> tuple[int, KeyState]:
        """(key, state) of a region or window."""

    def alloc_dm(self, length: int, log_align_req: int) -> int: ...

    def free_dm(self, dm: int) -> None: ...

    def memcpy_to_dm(self, dm: int, offset: int, bytes: bytes) -> None: ...

    def memcpy_from_dm(self, dm: int, offset: int, length: int) -> bytes: ...

    def reg_dm_mr(self, pd: int, dm: int, offset: int, length: int, access: int) -> MrInfo: ...

    def create_ah(self, pd: int, attr: AhAttr) -> int: ...

    def query_ah(self, ah: int) -> AhAttr: ...

    def destroy_ah(self, ah: int) -> None: ...

    def alloc_xrcd(self) -> int: ...

    def dealloc_xrcd(self, xrcd: int) -> None: ...

    def create_cq(self, cqe: int, timestamps: bool = True) -> int: ...

    def cq_capacity(self, cq: int) -> int: ...

    def cq_overflowed(self, cq: int) -> bool: ...

    def overflow_cq(self, cq: int) -> None: ...

    def resize_cq(self, cq: int, cqe: int) -> None: ...

    def moderate_cq(self, cq: int, count: int, period_ns: int) -> None: ...

    def req_notify_cq(self, cq: int, flags: int) -> int: ...

    def create_srq(self, pd: int, attr: SrqAttr, xrcd: int, cq: int) -> int: ...

    def modify_srq(self, srq: int, attr: SrqAttr, mask: int) -> None: ...

    def query_srq(self, srq: int) -> SrqAttr: ...

    def srq_number(self, srq: int) -> int: ...

    def post_srq_recv(self, srq: int, wrs: RecvWr | Sequence[RecvWr]) -> None: ...

    def post_srq_recv_many(self, srq: int, wrs: object, wr_ids: object) -> None: ...

    def post_send(self, qpn: int, wrs: SendWr | Sequence[SendWr]) -> None: ...

    def post_recv(self, qpn: int, wrs: RecvWr | Sequence[RecvWr]) -> None: ...

    def post_send_many(self, qpn: int, wrs: object, wr_ids: object) -> None: ...

    def post_recv_many(self, qpn: int, wrs: object, wr_ids: object) -> None: ...

    def create_qp(self, init: QpInit) -> int:
        """Returns the QPN; `init.cap` becomes what was given."""

    def query_qp(self, qpn: int) -> tuple[QpAttr, QpInit]: ...

    def qp_rate(self, qpn: int) -> int: ...

    def qp_load(self, qpn: int) -> tuple[int, int, int, int, int]:
        """
        Slots of the send and receive queue that are taken; responder resources, those that still answer, and answers that wait.
        """

    def attach_mcast(self, qpn: int, gid: bytes) -> None: ...

    def detach_mcast(self, qpn: int, gid: bytes) -> None: ...

    def destroy_qp(self, qpn: int) -> list[Any]:
        """Returns callbacks that will never run."""

    def modify_qp(self, qpn: int, attr: QpAttr, mask: int) -> list[Any]:
        """Returns callbacks that will never run; of RESET."""

    def destroy_srq(self, srq: int) -> list[Any]:
        """Returns callbacks that will never run."""

    def destroy_cq(self, cq: int) -> list[Any]:
        """Returns callbacks that will never run."""

    @property
    def cqes_under_way(self) -> int:
        """Posted work requests with a callback that has not run."""

    def take_all_cqes(self) -> list[Any]:
        """Callbacks of a device that was closed."""

    def poll_cq(self, cq: int, max_entries: int, cls: type[C], patience_ns: int = 0, progress: bool = True, for_tasks: bool = False) -> list[C]:
        """
        Without those that tasks await, which go there, unless they are asked for.
        """

    def poll_one(self, cq: int, cls: type[C]) -> C | None: ...

    def poll_into(self, cq: int, into: CompletionRecords) -> int: ...

    def create_channel(self) -> tuple[CompletionChannel, int]:
        """A channel, and the number that attach_cq() takes."""

    def wait_for(self, channel: CompletionChannel, seconds: float) -> bool:
        """
        Waits for an event of the channel, for a second at most; False if that takes another way.
        """

    def create_work(self, max_threads: int) -> tuple[CompletionWork, int]: ...

    def remove_sink(self, number: int) -> None: ...

    def attach_cq(self, cq: int, number: int) -> None: ...

    def process_cq(self, cq: int, budget: int, cq_object: object, wc_class: type) -> int: ...

    def serve(self, work: CompletionWork, budget: int, queue_of: object, start_thread: object, wc_class: type, once: bool = False) -> bool: ...

    def set_port_active(self, active: bool) -> None: ...

    def set_gid(self, index: int, gid: bytes) -> None: ...

    def fail_device(self) -> None: ...

    def receive(self, route: Route, datagram: bytes, now_ns: int) -> ReceiveReport: ...

    def next_packet(self, now_ns: int) -> SentPacket | None: ...

    @property
    def next_deadline_ns(self) -> int | None: ...

    def advance(self, now_ns: int) -> None: ...

    def set_idle(self, idle: object | None) -> None:
        """Who is called, in a simulation, when a poll finds nothing."""

    def reg_watched_mr(self, pd: int, address: int, length: int, iova: int, access: int, watch: Watch) -> MrInfo: ...

    def reg_process_mr(self, pd: int, memory: ProcessMemory, address: int, length: int, iova: int, access: int) -> MrInfo: ...

    def reg_mapped_mr(self, pd: int, mapping: SharedMapping, length: int, iova: int, access: int) -> MrInfo:
        """`length` is at most what was mapped."""

    def map_qp(self, qpn: int, sq: MappedRing, rq: MappedRing | None) -> None:
        """Feeds a queue pair in RESET from rings from then on."""

    def map_srq(self, srq: int, ring: MappedRing) -> None: ...

    def map_cq(self, cq: int, ring: MappedRing) -> None:
        """Completions go to the ring; those that wait in another ring go along."""

    def ring_doorbell(self, qpn: int) -> None: ...

    def create_pipe_sink(self, pipe: EventPipe, user_handle: int) -> int:
        """The number that attach_cq() takes."""

class Completion:
    """One entry of a completion queue; immutable."""

    @property
    def wr_id(self) -> int: ...

    @property
    def status(self) -> WcStatus: ...

    @property
    def cqe(self) -> Any: ...

    @property
    def opcode(self) -> WcOpcode: ...

    @property
    def sl(self) -> int: ...

    @property
    def port(self) -> int: ...

    @property
    def wc_flags(self) -> WcFlags: ...

    @property
    def byte_len(self) -> int: ...

    @property
    def immediate_or_rkey(self) -> int: ...

    @property
    def qp_num(self) -> int: ...

    @property
    def src_qp(self) -> int: ...

    @property
    def pkey_index(self) -> int: ...

    @property
    def is_receive(self) -> bool: ...

    @property
    def solicited(self) -> bool: ...

    @property
    def reason(self) -> Reason: ...

    @property
    def by_peer(self) -> bool: ...

    @property
    def psn(self) -> int: ...

    @property
    def key(self) -> int: ...

    @property
    def address(self) -> int: ...

    @property
    def length(self) -> int: ...

    @property
    def timestamp_ns(self) -> int: ...

def quicken_completions(cls: type) -> None:
    """Lets a class that adds no field to completions make them as fast."""

C = TypeVar("C", bound=Completion)

class CompletionRecords:
    """Room for completions as records."""

    @overload
    def __init__(self, room: int) -> None: ...

    @overload
    def __init__(self, buffer: memoryview) -> None: ...

    def __len__(self) -> int: ...

    def completion(self, index: int, cls: type[C]) -> C: ...

    def wr_ids(self, count: int) -> list[int]: ...

    def first_error(self, count: int) -> int:
        """Index of the first that did not succeed; -1 if all did."""

def store_completion(completion: Completion, into: CompletionRecords, index: int) -> None: ...

def name_awaited(cqe_class: type, wc_class: type) -> None:
    """
    Whoever polls, completions with such a callback go to the tasks that await them.
    """

class CompletionChannel:
    """Events of armed CQs, with a descriptor."""

    @property
    def fd(self) -> int: ...

    def pop(self) -> int:
        """The oldest event's CQ; 0 if there is none."""

    def put_back(self, cq: int) -> None: ...

    def forget(self, cq: int) -> None: ...

    def close(self) -> None: ...

    @property
    def closed(self) -> bool: ...

def report_unraisable(error: BaseException, where: object) -> None:
    """Hands an exception to sys.unraisablehook."""

class CompletionWork:
    """Queues that wait to be processed."""

    def add(self, cq: int) -> None: ...

    def remove(self, cq: int) -> None: ...

    def wait_for_others(self, cq: int) -> None: ...

    def begin_wait(self, cq: int) -> bool: ...

    def is_given_back(self, cq: int) -> bool: ...

    def end_wait(self, cq: int) -> None: ...

    def would_wait_for_caller(self, cq: int) -> bool: ...

    def claim_first_thread(self) -> bool: ...

    def thread_failed(self) -> None: ...

    def stop(self) -> None: ...

class ReceiveReport:
    """What an adapter made of a packet."""

    @property
    def qpn(self) -> int: ...

    @property
    def wr_id(self) -> int | None: ...

    @property
    def verdict(self) -> str: ...

class SentPacket:
    """A packet that an adapter wants sent."""

    @property
    def route(self) -> Route: ...

    @property
    def datagram(self) -> bytes: ...

    @property
    def qpn(self) -> int: ...

    @property
    def wr_id(self) -> int | None: ...

    @property
    def retransmitted(self) -> bool: ...

class LinkShape:
    """What a link is like, in both directions."""

    def __init__(self) -> None: ...

    @property
    def bits_per_second(self) -> int: ...

    @bits_per_second.setter
    def bits_per_second(self, arg: int, /) -> None: ...

    @property
    def latency_ns(self) -> int: ...

    @latency_ns.setter
    def latency_ns(self, arg: int, /) -> None: ...

    @property
    def queue_bytes(self) -> int: ...

    @queue_bytes.setter
    def queue_bytes(self, arg: int, /) -> None: ...

    @property
    def mtu_bytes(self) -> int: ...

    @mtu_bytes.setter
    def mtu_bytes(self, arg: int, /) -> None: ...

    @property
    def mark_from_bytes(self) -> int: ...

    @mark_from_bytes.setter
    def mark_from_bytes(self, arg: int, /) -> None: ...

    @property
    def mark_all_bytes(self) -> int: ...

    @mark_all_bytes.setter
    def mark_all_bytes(self, arg: int, /) -> None: ...

    @property
    def mark_probability(self) -> float: ...

    @mark_probability.setter
    def mark_probability(self, arg: float, /) -> None: ...

class FabricStop(enum.Enum):
    """Why the loop stopped."""

    TIME = 0

    NOTICE = 1

    QUIET = 2

    CALL = 3

    TOLD = 4

    INTERVAL = 5

class Fabric:
    """Adapters, links and switches in virtual time."""

    def __init__(self, *, seed: int, link: LinkShape, trace_bytes: int, jitter_ns: int, ack_delay_ns: int = 0) -> None: ...

    def add_host(self, hca: Hca) -> int: ...

    def add_switch(self) -> int: ...

    def node_of_host(self, host: int) -> int: ...

    def connect(self, a: int, b: int, shape: LinkShape) -> int: ...

    def set_link_up(self, link: int, up: bool) -> None: ...

    def run(self, until_ns: int = 18446744073709551615, notices: bool = True, events: int = 0) -> FabricStop: ...

    def call_at(self, at_ns: int, number: int) -> None: ...

    @property
    def called(self) -> int: ...

    def take_told(self) -> list[int]: ...

    def next_ns(self) -> int | None: ...

    @property
    def now_ns(self) -> int: ...

    @property
    def flying(self) -> int: ...

    def inject(self, route: Route, datagram: bytes, delay_ns: int = 0) -> None: ...

    def add_fault(self, rule: FaultRule) -> int: ...

    def remove_fault(self, number: int) -> None: ...

    def tally(self, number: int) -> tuple[int, int]: ...

    def strikes(self, number: int) -> list[int]: ...

    def records(self, first: int, count: int) -> list[tuple[int, int, int, int, int, int, int, int, str, bytes, Route | None]]: ...

    def note(self, host: int, text: str) -> None: ...

    @property
    def record_count(self) -> int: ...

    @property
    def forgotten(self) -> int: ...

    @property
    def digest(self) -> int: ...

    def counters(self) -> dict[str, int]: ...

    def lane_counters(self, lane: int) -> dict[str, int]: ...

class InvalidationChannel:
    """Where the notices of regions gather."""

    @staticmethod
    def open() -> InvalidationChannel: ...

    @property
    def fd(self) -> int: ...

    @property
    def generation_fd(self) -> int: ...

    @property
    def generation(self) -> int: ...

    def take(self, most: int) -> list[tuple[int, int, int, int, int, int, bool]]:
        """
        The oldest events: cookie, kind, address, length, offset, count, exact.
        """

    @property
    def lost(self) -> int: ...

    def shut(self) -> None: ...

class Watch:
    """What watches the memory of one region."""

    @staticmethod
    def open(channel: InvalidationChannel, address: int, length: int, cookie: int) -> Watch: ...

    @property
    def raised(self) -> int: ...

    def close(self) -> int: ...

class Known:
    """What listeners recognise: paths, files and doorbells."""

    def __init__(self) -> None: ...

    def show(self, path: str, directory: bytes) -> None: ...

    def set_live_directories(self, names: Sequence[str]) -> None: ...

    def add_device(self, path: str, device: int) -> None: ...

    def remove_path(self, path: str) -> None: ...

    def add_file(self, file_system: int, inode: int, device: int) -> None: ...

    def remove_file(self, inode: int) -> None: ...

    def add_doorbell(self, inode: int, qp_handle: int, hca: Hca, qpn: int) -> None:
        """The adapter must stay until the doorbell is removed."""

    def remove_doorbell(self, inode: int, qp_handle: int) -> None: ...

    def add_arm(self, inode: int, cq_handle: int, hca: Hca, cq: int) -> None:
        """The adapter must stay until the queue is removed."""

    def remove_arm(self, inode: int, cq_handle: int) -> None: ...

    def forget_ioctl(self) -> None:
        """Commands by ioctl(2) are none."""

class Asked:
    """A system call of a program that waits for our answer."""

    @property
    def call(self) -> str: ...

    @property
    def process(self) -> int:
        """The process that the task is a thread of; -1 if it is gone."""

    @property
    def task(self) -> int: ...

    @property
    def arguments(self) -> tuple[int, int, int, int, int, int]: ...

    @property
    def inode(self) -> int: ...

    @property
    def open_flags(self) -> int: ...

    @property
    def path(self) -> bytes: ...

    @property
    def least_number(self) -> int:
        """Below which F_DUPFD shall give no number."""

    @property
    def closes_on_exec(self) -> bool: ...

    def take_descriptor(self) -> int:
        """A copy of the descriptor that the call is about."""

    def read(self, address: int, length: int) -> bytes | None: ...

    def write(self, address: int, bytes: bytes) -> bool: ...

class FileWatch:
    """Tells which files nobody else has open any more."""

    def __init__(self) -> None: ...

    @property
    def fd(self) -> int: ...

    def add(self, descriptor: int) -> int: ...

    def remove(self, watch: int) -> None: ...

    def take_closed(self) -> list[int]: ...

class Listener:
    """Answers the kernel's questions about programs."""

    def __init__(self, descriptor: int, known: Known) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def next(self) -> Asked | None: ...

    def take_refused_task(self) -> int:
        """
        A task whose memory may not be reached; 0 if there is none that was not told of.
        """

    @property
    def fd(self) -> int: ...

    @property
    def is_over(self) -> bool: ...

    def is_valid(self, asked: Asked) -> bool: ...

    def give(self, asked: Asked, value: int) -> bool: ...

    def refuse(self, asked: Asked, error: int) -> bool: ...

    def proceed(self, asked: Asked) -> bool: ...

    def add_descriptor(self, asked: Asked, descriptor: int, at: int = -1, close_on_exec: bool = True, is_answer: bool = False) -> int: ...

    def answer_from_tree(self, asked: Asked) -> None: ...

def launch(path: bytes, arguments: Sequence[bytes], environment: Sequence[bytes], numbers: Sequence[tuple[int, int]], directory: bytes, doorbells_are_written: bool = False, tracer: int = 0, descriptor_limit: int = 0) -> tuple[int, int, int, int]:
    """
    Starts a program under the filter. Returns its process, its guardian, the guardian's socket and the listener.
    """

class ProcessMemory:
    """The memory of another process."""

    @staticmethod
    def open(pid: int, task: int = 0) -> ProcessMemory:
        """By a thread that runs, or by the first one."""

    def read(self, address: int, length: int) -> bytes | None:
        """None if any of it is not there."""

    def write(self, address: int, bytes: bytes) -> bool:
        """False if any of it is not there."""

    @property
    def pidfd(self) -> int:
        """Readable once the process has ended."""

class SharedMapping:
    """Memory of another process that is a file in memory, mapped here too."""

    def __init__(self, file: int, offset: int, length: int, writable: bool) -> None: ...

class RingFile:
    """What a program maps its queues from."""

    def __init__(self) -> None: ...

    @property
    def fd(self) -> int: ...

    DOORBELLS_AT: Final[int] = ...
    """Where the description that a program gets must begin."""

class MappedRing:
    """A queue that a program maps."""

    def __init__(self, element_bytes: int, elements: int, file: RingFile | None = None) -> None:
        """
        Both numbers are rounded up to powers of two; one element always stays free. Without a file it lies in one of its own.
        """

    @property
    def fd(self) -> int: ...

    @property
    def offset(self) -> int:
        """Where in the file to map it."""

    @property
    def size(self) -> int:
        """How much to map: whole pages."""

    @property
    def element_bytes(self) -> int: ...

    @property
    def elements(self) -> int: ...

class EventPipe:
    """Completion events as records in a pipe."""

    def __init__(self, write_fd: int) -> None: ...

    @property
    def error(self) -> int:
        """An errno; 0 if it can be written to."""

    def forget(self, user_handle: int) -> int:
        """Takes back unread events of a queue; how many the program has read."""

class DoorbellWatch:
    """Rings the doorbells that programs write to their files."""

    def __init__(self, known: Known, most_ns: int = 200000) -> None:
        """`most_ns`: how long to look out at most before sleeping."""

    def add(self, file: RingFile) -> None:
        """Programs' descriptions of it must begin at DOORBELLS_AT."""

    def remove(self, inode: int) -> None: ...

    def ring_written(self, inode: int) -> None:
        """
        Rings what programs have written to a file so far, before this returns.
        """

    def close(self) -> None: ...

def quicken(cls: type) -> None:
    """Gives QP, SRQ and CQ their quick methods. Once each."""

def quicken_requests(sge: type, remote: type, cqe: type, *classes: type) -> None:
    """
    Gives work requests their quick constructors; names the classes of their arguments.
    """
