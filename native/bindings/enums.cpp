#include "vocabulary/enums.hpp"

#include "bindings/module.hpp"

namespace softhca {
namespace {

#define VALUE(name) .value(#name, Enum::name)

void bind_states(nb::module_& module) {
  {
    using Enum = QpType;
    nb::enum_<Enum>(module, "QPType", nb::is_arithmetic(), "Service type of a queue pair.")
        VALUE(RC) VALUE(UC) VALUE(UD) VALUE(XRC_SEND) VALUE(XRC_RECV);
  }
  {
    using Enum = QpState;
    nb::enum_<Enum>(module, "QPState", nb::is_arithmetic(), "State of a queue pair (IBTA 10.3.1).")
        VALUE(RESET) VALUE(INIT) VALUE(RTR) VALUE(RTS) VALUE(SQD) VALUE(SQE) VALUE(ERR);
  }
  {
    using Enum = MigState;
    nb::enum_<Enum>(module, "MigState", nb::is_arithmetic(), "Path migration state.")
        VALUE(MIGRATED) VALUE(REARM) VALUE(ARMED);
  }
  {
    using Enum = Mtu;
    nb::enum_<Enum>(module, "Mtu", nb::is_arithmetic(), "Path MTU code.") VALUE(MTU_256)
        VALUE(MTU_512) VALUE(MTU_1024) VALUE(MTU_2048) VALUE(MTU_4096);
  }
}

void bind_completion_values(nb::module_& module) {
  {
    using Enum = WrOpcode;
    nb::enum_<Enum>(module, "WrOpcode", nb::is_arithmetic(), "Operation of a work request.")
        VALUE(RDMA_WRITE) VALUE(RDMA_WRITE_WITH_IMM) VALUE(SEND) VALUE(SEND_WITH_IMM)
            VALUE(RDMA_READ) VALUE(ATOMIC_CMP_AND_SWP) VALUE(ATOMIC_FETCH_AND_ADD) VALUE(LOCAL_INV)
                VALUE(BIND_MW) VALUE(SEND_WITH_INV) VALUE(MASKED_ATOMIC_CMP_AND_SWP)
                    VALUE(MASKED_ATOMIC_FETCH_AND_ADD) VALUE(FLUSH) VALUE(ATOMIC_WRITE)
                        VALUE(REG_MR);
  }
  nb::enum_<SendFlags>(module, "SendFlags", nb::is_arithmetic(), nb::is_flag(),
                       "Flags of a send work request.")
      .value("FENCE", kSendFence)
      .value("SIGNALED", kSendSignaled)
      .value("SOLICITED", kSendSolicited)
      .value("INLINE", kSendInline);
  {
    using Enum = WcStatus;
    nb::enum_<Enum>(module, "WcStatus", nb::is_arithmetic(), "Status of a completion.")
        VALUE(SUCCESS) VALUE(LOC_LEN_ERR) VALUE(LOC_QP_OP_ERR) VALUE(LOC_EEC_OP_ERR)
            VALUE(LOC_PROT_ERR) VALUE(WR_FLUSH_ERR) VALUE(MW_BIND_ERR) VALUE(BAD_RESP_ERR)
                VALUE(LOC_ACCESS_ERR) VALUE(REM_INV_REQ_ERR) VALUE(REM_ACCESS_ERR) VALUE(REM_OP_ERR)
                    VALUE(RETRY_EXC_ERR) VALUE(RNR_RETRY_EXC_ERR) VALUE(LOC_RDD_VIOL_ERR)
                        VALUE(REM_INV_RD_REQ_ERR) VALUE(REM_ABORT_ERR) VALUE(INV_EECN_ERR)
                            VALUE(INV_EEC_STATE_ERR) VALUE(FATAL_ERR) VALUE(RESP_TIMEOUT_ERR)
                                VALUE(GENERAL_ERR);
  }
  {
    using Enum = WcOpcode;
    nb::enum_<Enum>(module, "WcOpcode", nb::is_arithmetic(), "Operation that a completion reports.")
        VALUE(SEND) VALUE(RDMA_WRITE) VALUE(RDMA_READ) VALUE(COMP_SWAP) VALUE(FETCH_ADD)
            VALUE(BIND_MW) VALUE(LOCAL_INV) VALUE(FLUSH) VALUE(ATOMIC_WRITE) VALUE(REG_MR)
                VALUE(MASKED_COMP_SWAP) VALUE(MASKED_FETCH_ADD) VALUE(RECV)
                    VALUE(RECV_RDMA_WITH_IMM);
  }
  nb::enum_<WcFlags>(module, "WcFlags", nb::is_arithmetic(), nb::is_flag(),
                     "What a completion carries.")
      .value("GRH", kWcGrh)
      .value("WITH_IMM", kWcWithImm)
      .value("WITH_INV", kWcWithInv);
  {
    using Enum = Reason;
    nb::enum_<Enum>(module, "Reason", nb::is_arithmetic(), "Why a work request or packet failed.")
        VALUE(NONE) VALUE(UNKNOWN_KEY) VALUE(OTHER_PD) VALUE(OUT_OF_BOUNDS) VALUE(MISSING_RIGHT)
            VALUE(QP_MISSING_RIGHT) VALUE(MISALIGNED) VALUE(TOO_LONG) VALUE(BAD_LENGTH)
                VALUE(BAD_SEQUENCE) VALUE(UNSUPPORTED) VALUE(TOO_MANY_READS)
                    VALUE(REFUSED_INVALIDATE) VALUE(RETRIES_EXHAUSTED) VALUE(RNR_EXHAUSTED)
                        VALUE(NAK_INVALID_REQUEST) VALUE(NAK_ACCESS) VALUE(NAK_OPERATIONAL)
                            VALUE(BAD_RESPONSE) VALUE(FLUSHED) VALUE(BAD_ADDRESS_HANDLE)
                                VALUE(MEMORY_GONE) VALUE(BAD_SRQ) VALUE(CQ_OVERRUN)
                                    VALUE(LOCAL_RECEIVE_BUFFER) VALUE(OTHER_QP) VALUE(WINDOW_KEY)
                                        VALUE(KEY_NOT_VALID) VALUE(NO_BIND_RIGHT)
                                            VALUE(WINDOW_WRITES) VALUE(NOT_FREE) VALUE(EMPTY_BIND)
                                                VALUE(KEY_INDEX) VALUE(ZERO_BASED_REGION)
                                                    VALUE(ZERO_BASED_WINDOW) VALUE(WRONG_WINDOW)
                                                        VALUE(WINDOWS_BOUND)
                                                            VALUE(NOT_INVALIDATABLE)
                                                                VALUE(NOT_MAPPED) VALUE(BAD_ACCESS)
                                                                    VALUE(ATOMIC_LENGTH);
  }
  module.def(
      "reason_text", [](Reason reason) { return reason_text(reason); }, nb::arg("reason"),
      "A clause that says the reason.");
}

void bind_rights(nb::module_& module) {
  nb::enum_<AccessFlags>(module, "Access", nb::is_arithmetic(), nb::is_flag(),
                         "Rights that a memory region, window or queue pair gives.")
      .value("LOCAL_WRITE", kAccessLocalWrite)
      .value("REMOTE_WRITE", kAccessRemoteWrite)
      .value("REMOTE_READ", kAccessRemoteRead)
      .value("REMOTE_ATOMIC", kAccessRemoteAtomic)
      .value("MW_BIND", kAccessMwBind)
      .value("ZERO_BASED", kAccessZeroBased)
      .value("ON_DEMAND", kAccessOnDemand)
      .value("HUGETLB", kAccessHugeTlb)
      .value("FLUSH_GLOBAL", kAccessFlushGlobal)
      .value("FLUSH_PERSISTENT", kAccessFlushPersistent)
      .value("RELAXED_ORDERING", static_cast<AccessFlags>(1u << 20));
}

void bind_windows(nb::module_& module) {
  {
    using Enum = MwType;
    nb::enum_<Enum>(module, "MwType", nb::is_arithmetic(), "Type of a memory window.") VALUE(TYPE_1)
        VALUE(TYPE_2);
  }
  {
    using Enum = MrType;
    nb::enum_<Enum>(module, "MrType", nb::is_arithmetic(),
                    "How the pieces of a region for fast registration may lie.") VALUE(MEM_REG)
        VALUE(SG_GAPS);
  }
  {
    using Enum = KeyState;
    nb::enum_<Enum>(module, "KeyState", nb::is_arithmetic(),
                    "What a key of a window, or of a region for fast registration, stands for.")
        VALUE(INVALID) VALUE(FREE) VALUE(VALID);
  }
}

void bind_masks(nb::module_& module) {
  nb::enum_<QpAttrMask>(module, "QPAttrMask", nb::is_arithmetic(), nb::is_flag(),
                        "Which attributes a modify changes.")
      .value("STATE", kQpState)
      .value("CUR_STATE", kQpCurState)
      .value("EN_SQD_ASYNC_NOTIFY", kQpEnSqdAsyncNotify)
      .value("ACCESS_FLAGS", kQpAccessFlags)
      .value("PKEY_INDEX", kQpPkeyIndex)
      .value("PORT", kQpPort)
      .value("QKEY", kQpQkey)
      .value("AV", kQpAv)
      .value("PATH_MTU", kQpPathMtu)
      .value("TIMEOUT", kQpTimeout)
      .value("RETRY_CNT", kQpRetryCnt)
      .value("RNR_RETRY", kQpRnrRetry)
      .value("RQ_PSN", kQpRqPsn)
      .value("MAX_QP_RD_ATOMIC", kQpMaxQpRdAtomic)
      .value("ALT_PATH", kQpAltPath)
      .value("MIN_RNR_TIMER", kQpMinRnrTimer)
      .value("SQ_PSN", kQpSqPsn)
      .value("MAX_DEST_RD_ATOMIC", kQpMaxDestRdAtomic)
      .value("PATH_MIG_STATE", kQpPathMigState)
      .value("CAP", kQpCap)
      .value("DEST_QPN", kQpDestQpn);
  nb::enum_<SrqAttrMask>(module, "SRQAttrMask", nb::is_arithmetic(), nb::is_flag(),
                         "Which attributes of an SRQ a modify changes.")
      .value("MAX_WR", kSrqMaxWr)
      .value("LIMIT", kSrqLimit);
}

void bind_events(nb::module_& module) {
  using Enum = EventType;
  nb::enum_<Enum>(module, "EventType", nb::is_arithmetic(), "Kind of an asynchronous event.")
      VALUE(CQ_ERR) VALUE(QP_FATAL) VALUE(QP_REQ_ERR) VALUE(QP_ACCESS_ERR) VALUE(COMM_EST)
          VALUE(SQ_DRAINED) VALUE(PATH_MIG) VALUE(PATH_MIG_ERR) VALUE(DEVICE_FATAL)
              VALUE(PORT_ACTIVE) VALUE(PORT_ERR) VALUE(LID_CHANGE) VALUE(PKEY_CHANGE)
                  VALUE(SM_CHANGE) VALUE(SRQ_ERR) VALUE(SRQ_LIMIT_REACHED)
                      VALUE(QP_LAST_WQE_REACHED) VALUE(CLIENT_REREGISTER) VALUE(GID_CHANGE);
}

#undef VALUE

}  // namespace

void bind_enums(nb::module_& module) {
  bind_states(module);
  bind_completion_values(module);
  bind_rights(module);
  bind_windows(module);
  bind_masks(module);
  bind_events(module);
}

}  // namespace softhca
