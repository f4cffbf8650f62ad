// One entry of a completion queue: ibv_wc, and what explains an error.
#pragma once

#include <cstdint>

#include "vocabulary/enums.hpp"

namespace softhca {

// In the order of the record that it becomes in an array of the caller's (bindings/records.hpp).
struct Completion {
  std::uint64_t wr_id = 0;
  std::uint64_t timestamp_ns = 0;  // Adapter clock at the time of completion; 0 if none is taken.
  // Of the access that was refused, where there was one; its `key` is below.
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint32_t byte_len = 0;
  // kWcWithImm: immediate; kWcWithInv: the rkey that was invalidated.
  std::uint32_t immediate_or_rkey = 0;
  std::uint32_t qpn = 0;
  std::uint32_t source_qpn = 0;  // UD.
  std::uint32_t wc_flags = 0;
  std::uint32_t psn = 0;
  std::uint32_t key = 0;
  std::uint16_t pkey_index = 0;
  WcStatus status = WcStatus::SUCCESS;
  WcOpcode opcode = WcOpcode::SEND;
  Reason reason = Reason::NONE;  // Why it failed.
  std::uint8_t sl = 0;
  std::uint8_t port = 1;
  std::uint8_t ip_version = 0;  // UD: of the datagram; 0 if there was none.
  bool is_receive = false;
  bool solicited = false;
  bool by_peer = false;  // The peer refused, not this adapter.
  std::uint8_t reserved = 0;
  // A number that whoever posted gave besides the wr_id; 0 if none. It names a callback.
  std::uint64_t cqe = 0;
};

}  // namespace softhca
