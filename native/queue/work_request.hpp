// Work requests as the verbs post them, and as queues keep them.
#pragma once

#include <cstdint>
#include <vector>

#include "vocabulary/bind_info.hpp"
#include "vocabulary/enums.hpp"
#include "vocabulary/sge.hpp"

namespace softhca {

// What BIND_MW and REG_MR do to which key.
struct MemoryWork {
  std::uint32_t object = 0;  // Handle of the window or region.
  std::uint32_t key = 0;     // Its key from then on.
  MwType type = MwType::TYPE_2;
  BindInfo bind;            // REG_MR: only the access flags.
  std::uint64_t owner = 0;  // Which device the object is of, for who posts; 0: not said.
};

// What FLUSH is about (Annex A19).
struct FlushWork {
  std::uint32_t length = 0;
  std::uint8_t placement_type = 0;  // 1 global visibility, 2 persistence (bits).
  std::uint8_t selectivity = 0;     // 0 range, 1 whole region.
};

// ibv_send_wr without its pointers. Reusable: posting copies it.
struct SendWr {
  std::uint64_t wr_id = 0;
  bool has_cqe = false;  // Who posts gives a number for a callback besides.
  WrOpcode opcode = WrOpcode::SEND;
  std::uint32_t send_flags = 0;  // SendFlags.
  std::uint32_t immediate = 0;   // Big-endian integer on the wire.
  std::uint32_t invalidate_rkey = 0;
  std::uint64_t remote_address = 0;  // RDMA and atomics.
  std::uint32_t rkey = 0;
  std::uint64_t compare_add = 0;  // CMP_SWAP: compare; FETCH_ADD: the addend.
  std::uint64_t swap = 0;
  std::uint64_t compare_mask = 0;  // Masked FETCH_ADD: the last bit of each field.
  std::uint64_t swap_mask = 0;
  FlushWork flush;
  std::uint32_t ah = 0;  // UD: address handle number.
  std::uint32_t remote_qpn = 0;
  std::uint32_t remote_qkey = 0;  // Most significant bit set: use the QP's own.
  std::uint32_t xrc_srqn = 0;     // XRC_SEND.
  MemoryWork memory;
  // Fetched from a queue, and no request that can run: it fails when its turn comes.
  Reason refused = Reason::NONE;
  std::vector<Sge> sges;
};

struct RecvWr {
  std::uint64_t wr_id = 0;
  bool has_cqe = false;
  std::vector<Sge> sges;
};

}  // namespace softhca
