// Enumerations whose values are those of the kernel's user ABI (ib_user_verbs.h, verbs.h); Python
// shows the same numbers.
#pragma once

#include <cstdint>

namespace softhca {

enum class QpType : std::uint8_t { RC = 2, UC = 3, UD = 4, XRC_SEND = 9, XRC_RECV = 10 };

enum class QpState : std::uint8_t {
  RESET = 0,
  INIT = 1,
  RTR = 2,
  RTS = 3,
  SQD = 4,
  SQE = 5,
  ERR = 6
};

enum class MigState : std::uint8_t { MIGRATED = 0, REARM = 1, ARMED = 2 };

enum class Mtu : std::uint8_t {
  MTU_256 = 1,
  MTU_512 = 2,
  MTU_1024 = 3,
  MTU_2048 = 4,
  MTU_4096 = 5
};
inline constexpr std::uint32_t mtu_bytes(std::uint8_t mtu_code) { return 128u << mtu_code; }
// How many of them so many bytes make, without a division.
inline constexpr std::uint32_t mtus_in(std::uint32_t bytes, std::uint8_t mtu_code) {
  return bytes >> (7 + mtu_code);
}

// ib_uverbs_wr_opcode; REG_MR is the kernel's own.
enum class WrOpcode : std::uint8_t {
  RDMA_WRITE = 0,
  RDMA_WRITE_WITH_IMM = 1,
  SEND = 2,
  SEND_WITH_IMM = 3,
  RDMA_READ = 4,
  ATOMIC_CMP_AND_SWP = 5,
  ATOMIC_FETCH_AND_ADD = 6,
  LOCAL_INV = 7,
  BIND_MW = 8,
  SEND_WITH_INV = 9,
  MASKED_ATOMIC_CMP_AND_SWP = 12,
  MASKED_ATOMIC_FETCH_AND_ADD = 13,
  FLUSH = 14,
  ATOMIC_WRITE = 15,
  REG_MR = 32,
};

enum SendFlags : std::uint32_t {
  kSendFence = 1,
  kSendSignaled = 2,
  kSendSolicited = 4,
  kSendInline = 8,
};

enum NotifyFlags : std::uint32_t {
  kNotifySolicited = 1,
  kNotifyNextComp = 2,
  kNotifyReportMissedEvents = 4,
};

enum class WcStatus : std::uint8_t {
  SUCCESS = 0,
  LOC_LEN_ERR = 1,
  LOC_QP_OP_ERR = 2,
  LOC_EEC_OP_ERR = 3,
  LOC_PROT_ERR = 4,
  WR_FLUSH_ERR = 5,
  MW_BIND_ERR = 6,
  BAD_RESP_ERR = 7,
  LOC_ACCESS_ERR = 8,
  REM_INV_REQ_ERR = 9,
  REM_ACCESS_ERR = 10,
  REM_OP_ERR = 11,
  RETRY_EXC_ERR = 12,
  RNR_RETRY_EXC_ERR = 13,
  LOC_RDD_VIOL_ERR = 14,
  REM_INV_RD_REQ_ERR = 15,
  REM_ABORT_ERR = 16,
  INV_EECN_ERR = 17,
  INV_EEC_STATE_ERR = 18,
  FATAL_ERR = 19,
  RESP_TIMEOUT_ERR = 20,
  GENERAL_ERR = 21,
};

enum class WcOpcode : std::uint8_t {
  SEND = 0,
  RDMA_WRITE = 1,
  RDMA_READ = 2,
  COMP_SWAP = 3,
  FETCH_ADD = 4,
  BIND_MW = 5,
  LOCAL_INV = 6,
  FLUSH = 8,
  ATOMIC_WRITE = 9,
  REG_MR = 10,
  MASKED_COMP_SWAP = 11,
  MASKED_FETCH_ADD = 12,
  RECV = 128,
  RECV_RDMA_WITH_IMM = 129,
};

enum WcFlags : std::uint32_t { kWcGrh = 1, kWcWithImm = 2, kWcWithInv = 8 };

enum AccessFlags : std::uint32_t {
  kAccessLocalWrite = 1u << 0,
  kAccessRemoteWrite = 1u << 1,
  kAccessRemoteRead = 1u << 2,
  kAccessRemoteAtomic = 1u << 3,
  kAccessMwBind = 1u << 4,
  kAccessZeroBased = 1u << 5,
  kAccessOnDemand = 1u << 6,
  kAccessHugeTlb = 1u << 7,
  kAccessFlushGlobal = 1u << 8,
  kAccessFlushPersistent = 1u << 9,
  kAccessOptionalRange = 0x3ff00000u,  // Bits 20 to 29: hints that never fail.
};

// ibv_rereg_mr_flags.
enum ReregMrFlags : std::uint32_t {
  kReregTranslation = 1,
  kReregPd = 2,
  kReregAccess = 4,
};

// ibv_mw_type.
enum class MwType : std::uint8_t { TYPE_1 = 1, TYPE_2 = 2 };

// ib_mr_type: how the pieces of a region for fast registration may lie.
enum class MrType : std::uint8_t { MEM_REG = 0, SG_GAPS = 1 };

// States of a window's key, and of one for fast registration (IBTA Vol 1, 10.6.4.8; 10.6.7).
enum class KeyState : std::uint8_t { INVALID = 0, FREE = 1, VALID = 2 };

// ibv_qp_attr_mask.
enum QpAttrMask : std::uint32_t {
  kQpState = 1u << 0,
  kQpCurState = 1u << 1,
  kQpEnSqdAsyncNotify = 1u << 2,
  kQpAccessFlags = 1u << 3,
  kQpPkeyIndex = 1u << 4,
  kQpPort = 1u << 5,
  kQpQkey = 1u << 6,
  kQpAv = 1u << 7,
  kQpPathMtu = 1u << 8,
  kQpTimeout = 1u << 9,
  kQpRetryCnt = 1u << 10,
  kQpRnrRetry = 1u << 11,
  kQpRqPsn = 1u << 12,
  kQpMaxQpRdAtomic = 1u << 13,
  kQpAltPath = 1u << 14,
  kQpMinRnrTimer = 1u << 15,
  kQpSqPsn = 1u << 16,
  kQpMaxDestRdAtomic = 1u << 17,
  kQpPathMigState = 1u << 18,
  kQpCap = 1u << 19,
  kQpDestQpn = 1u << 20,
};

enum SrqAttrMask : std::uint32_t { kSrqMaxWr = 1, kSrqLimit = 2 };

// ibv_event_type.
enum class EventType : std::uint8_t {
  CQ_ERR = 0,
  QP_FATAL = 1,
  QP_REQ_ERR = 2,
  QP_ACCESS_ERR = 3,
  COMM_EST = 4,
  SQ_DRAINED = 5,
  PATH_MIG = 6,
  PATH_MIG_ERR = 7,
  DEVICE_FATAL = 8,
  PORT_ACTIVE = 9,
  PORT_ERR = 10,
  LID_CHANGE = 11,
  PKEY_CHANGE = 12,
  SM_CHANGE = 13,
  SRQ_ERR = 14,
  SRQ_LIMIT_REACHED = 15,
  QP_LAST_WQE_REACHED = 16,
  CLIENT_REREGISTER = 17,
  GID_CHANGE = 18,
};

// Why a completion or a packet failed, in our own words; `vendor_err` of a completion carries the
// number.
enum class Reason : std::uint8_t {
  NONE = 0,
  UNKNOWN_KEY = 1,           // No region has this key, or its tag is stale.
  OTHER_PD = 2,              // The region belongs to another protection domain.
  OUT_OF_BOUNDS = 3,         // The range leaves the region, or wraps.
  MISSING_RIGHT = 4,         // The region lacks the access right.
  QP_MISSING_RIGHT = 5,      // The QP's access flags lack the right.
  MISALIGNED = 6,            // An atomic's address, or place, is no multiple of eight.
  TOO_LONG = 7,              // The message is longer than the receive, the MTU or 2^31.
  BAD_LENGTH = 8,            // Packet length does not fit its place in the message.
  BAD_SEQUENCE = 9,          // First/middle/last/only out of order.
  UNSUPPORTED = 10,          // The operation does not exist in this service type.
  TOO_MANY_READS = 11,       // More READs and atomics than max_dest_rd_atomic.
  REFUSED_INVALIDATE = 12,   // The key cannot be invalidated by this peer.
  RETRIES_EXHAUSTED = 13,    // No progress after retry_cnt retries.
  RNR_EXHAUSTED = 14,        // The peer had no receive posted, rnr_retry times.
  NAK_INVALID_REQUEST = 15,  // What the peer said.
  NAK_ACCESS = 16,
  NAK_OPERATIONAL = 17,
  BAD_RESPONSE = 18,          // A response that fits no request.
  FLUSHED = 19,               // The QP was in error before this work request ran.
  BAD_ADDRESS_HANDLE = 20,    // Unknown, or of another PD.
  MEMORY_GONE = 21,           // The registered memory is no longer there.
  BAD_SRQ = 22,               // XRCETH names no SRQ of this domain, or not the message's.
  CQ_OVERRUN = 23,            // A completion queue of the QP overflowed.
  LOCAL_RECEIVE_BUFFER = 24,  // A receive's scatter list failed its checks.
  OTHER_QP = 25,              // The window is bound to another queue pair.
  WINDOW_KEY = 26,            // A window's key gives no local access.
  KEY_NOT_VALID = 27,         // Unbound or invalidated.
  NO_BIND_RIGHT = 28,         // The region lacks MW_BIND.
  WINDOW_WRITES = 29,         // A window to write through, on a region without LOCAL_WRITE.
  NOT_FREE = 30,              // Bound or registered already; invalidate first.
  EMPTY_BIND = 31,            // A window of type 2 bound to no bytes.
  KEY_INDEX = 32,             // The new key differs in more than its tag.
  ZERO_BASED_REGION = 33,     // A window on a zero-based region.
  ZERO_BASED_WINDOW = 34,     // A zero-based window of type 1.
  WRONG_WINDOW = 35,          // No window, or not of the type that the operation needs.
  WINDOWS_BOUND = 36,         // Windows are bound to the region.
  NOT_INVALIDATABLE = 37,     // A window of type 1, or a region of reg_mr.
  NOT_MAPPED = 38,            // REG_MR before map_mr_sg.
  BAD_ACCESS = 39,            // Rights that the operation does not take, or that contradict.
  ATOMIC_LENGTH = 40,         // Buffers of an atomic that are not of eight bytes.
};
const char* reason_text(Reason reason);

}  // namespace softhca
