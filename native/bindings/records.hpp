// Work requests and completions as records of plain bytes, which an array of NumPy holds without an
// object for each. The layouts are public: src/softhca/verbs/records.py says them in words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "queue/completion.hpp"
#include "queue/work_request.hpp"

namespace softhca {

struct SendRecord {
  std::uint64_t wr_id;
  std::uint64_t addr;
  std::uint64_t remote_addr;
  std::uint64_t compare_add;
  std::uint64_t swap;
  std::uint32_t length;
  std::uint32_t lkey;
  std::uint32_t rkey;
  std::uint32_t opcode;
  std::uint32_t send_flags;
  std::uint32_t imm;  // Or the key to invalidate.
  std::uint32_t ah;
  std::uint32_t remote_qpn;
  std::uint32_t remote_qkey;
  std::uint32_t srqn;
};
static_assert(sizeof(SendRecord) == 80);

struct RecvRecord {
  std::uint64_t wr_id;
  std::uint64_t addr;
  std::uint32_t length;
  std::uint32_t lkey;
};
static_assert(sizeof(RecvRecord) == 24);

// It may lie anywhere in whatever memory the caller has.
struct [[gnu::packed, gnu::may_alias]] CompletionRecord {
  std::uint64_t wr_id;
  std::uint64_t timestamp_ns;
  std::uint64_t address;
  std::uint64_t length;
  std::uint32_t byte_len;
  std::uint32_t immediate_or_rkey;
  std::uint32_t qp_num;
  std::uint32_t src_qp;
  std::uint32_t wc_flags;
  std::uint32_t psn;
  std::uint32_t key;
  std::uint16_t pkey_index;
  std::uint8_t status;
  std::uint8_t opcode;
  std::uint8_t reason;
  std::uint8_t sl;
  std::uint8_t port;
  std::uint8_t ip_version;
  std::uint8_t is_receive;
  std::uint8_t solicited;
  std::uint8_t by_peer;
  std::uint8_t reserved;
};
static_assert(sizeof(CompletionRecord) == 72);

// One entry, or none if there are no bytes.
inline void set_entry(std::vector<Sge>& sges, std::uint64_t addr, std::uint32_t length,
                      std::uint32_t lkey) {
  sges.resize(length == 0 ? 0 : 1);
  if (length != 0) sges[0] = {addr, length, lkey};
}

// False: the opcode is none that a record can say.
inline bool is_for_records(std::uint32_t opcode) {
  switch (static_cast<WrOpcode>(opcode)) {
    case WrOpcode::RDMA_WRITE:
    case WrOpcode::RDMA_WRITE_WITH_IMM:
    case WrOpcode::SEND:
    case WrOpcode::SEND_WITH_IMM:
    case WrOpcode::RDMA_READ:
    case WrOpcode::ATOMIC_CMP_AND_SWP:
    case WrOpcode::ATOMIC_FETCH_AND_ADD:
    case WrOpcode::SEND_WITH_INV:
    case WrOpcode::ATOMIC_WRITE:
      return opcode <= 0xff;
    default:
      return false;
  }
}

// Sets what a record says; the other fields of `wr` stay as they were made. Precondition:
// is_for_records().
inline void from_record(const SendRecord& record, SendWr& wr) {
  wr.wr_id = record.wr_id;
  wr.opcode = static_cast<WrOpcode>(record.opcode);
  wr.send_flags = record.send_flags;
  wr.immediate = record.imm;
  wr.invalidate_rkey = record.imm;
  wr.remote_address = record.remote_addr;
  wr.rkey = record.rkey;
  wr.compare_add = record.compare_add;
  wr.swap = record.swap;
  wr.ah = record.ah;
  wr.remote_qpn = record.remote_qpn;
  wr.remote_qkey = record.remote_qkey;
  wr.xrc_srqn = record.srqn;
  set_entry(wr.sges, record.addr, record.length, record.lkey);
}

inline void from_record(const RecvRecord& record, RecvWr& wr) {
  wr.wr_id = record.wr_id;
  set_entry(wr.sges, record.addr, record.length, record.lkey);
}

inline CompletionRecord* records_at(char* bytes) {
  return reinterpret_cast<CompletionRecord*>(bytes);
}

// What a completion begins with is its record.
static_assert(std::is_trivially_copyable_v<Completion> &&
              offsetof(Completion, cqe) == sizeof(CompletionRecord) &&
              offsetof(Completion, byte_len) == offsetof(CompletionRecord, byte_len) &&
              offsetof(Completion, psn) == offsetof(CompletionRecord, psn) &&
              offsetof(Completion, opcode) == offsetof(CompletionRecord, opcode) &&
              offsetof(Completion, by_peer) == offsetof(CompletionRecord, by_peer));

inline void write_record(const Completion& completion, CompletionRecord& record) {
  std::memcpy(&record, &completion, sizeof record);
}

inline Completion to_completion(const CompletionRecord& record) {
  return {.wr_id = record.wr_id,
          .timestamp_ns = record.timestamp_ns,
          .address = record.address,
          .length = record.length,
          .byte_len = record.byte_len,
          .immediate_or_rkey = record.immediate_or_rkey,
          .qpn = record.qp_num,
          .source_qpn = record.src_qp,
          .wc_flags = record.wc_flags,
          .psn = record.psn,
          .key = record.key,
          .pkey_index = record.pkey_index,
          .status = static_cast<WcStatus>(record.status),
          .opcode = static_cast<WcOpcode>(record.opcode),
          .reason = static_cast<Reason>(record.reason),
          .sl = record.sl,
          .port = record.port,
          .ip_version = record.ip_version,
          .is_receive = record.is_receive != 0,
          .solicited = record.solicited != 0,
          .by_peer = record.by_peer != 0};
}

}  // namespace softhca
