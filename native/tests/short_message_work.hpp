// Random work for two pairs of queue pairs, and whether both complete it alike.
#pragma once

#include <array>
#include <cstdint>

#include "tests/short_message_pair.hpp"
#include "vocabulary/random.hpp"

namespace softhca::testing::twins {

struct Sketch {
  WrOpcode opcode = WrOpcode::SEND;
  std::uint32_t flags = 0;
  std::array<std::uint32_t, 2> lengths{};
  std::uint32_t count = 1;
  std::uint64_t remote_offset = 0;
  bool wrong_rkey = false;
  bool wrong_lkey = false;
};

inline Sketch sketch_of(Random& random, bool rarely_signaled) {
  constexpr WrOpcode kOpcodes[] = {WrOpcode::SEND,          WrOpcode::SEND,
                                   WrOpcode::SEND_WITH_IMM, WrOpcode::RDMA_WRITE,
                                   WrOpcode::RDMA_WRITE,    WrOpcode::RDMA_WRITE_WITH_IMM,
                                   WrOpcode::RDMA_READ,     WrOpcode::ATOMIC_FETCH_AND_ADD};
  constexpr std::uint32_t kLengths[] = {0, 1, 3, 8, 64, 511, 1000, 1024, 1025, 2048, 3000};
  Sketch sketch;
  sketch.opcode = kOpcodes[random.below(std::size(kOpcodes))];
  const bool answered =
      sketch.opcode == WrOpcode::RDMA_READ || sketch.opcode == WrOpcode::ATOMIC_FETCH_AND_ADD;
  sketch.count = answered ? 1 : static_cast<std::uint32_t>(random.below(3));
  for (std::uint32_t& length : sketch.lengths) length = kLengths[random.below(std::size(kLengths))];
  if (random.below(rarely_signaled ? 32 : 2) == 0) sketch.flags |= kSendSignaled;
  if (random.below(4) == 0) sketch.flags |= kSendSolicited;
  if (random.below(8) == 0) sketch.flags |= kSendFence;
  if (!answered && random.below(4) == 0) {
    sketch.flags |= kSendInline;
    for (std::uint32_t& length : sketch.lengths) length %= 32;
  }
  if (sketch.opcode == WrOpcode::ATOMIC_FETCH_AND_ADD) sketch.lengths[0] = 8;
  sketch.remote_offset = random.below(64) * 8;
  if (random.below(64) == 0) sketch.remote_offset = kBytes;
  sketch.wrong_rkey = random.below(96) == 0;
  sketch.wrong_lkey = random.below(96) == 0;
  return sketch;
}

// One that may leave in a run with others.
inline Sketch plain_sketch_of(Random& random, bool rarely_signaled) {
  constexpr WrOpcode kOpcodes[] = {WrOpcode::SEND, WrOpcode::SEND_WITH_IMM, WrOpcode::RDMA_WRITE,
                                   WrOpcode::RDMA_WRITE_WITH_IMM};
  Sketch sketch;
  sketch.opcode = kOpcodes[random.below(std::size(kOpcodes))];
  const bool is_long = random.below(8) == 0;
  sketch.lengths = {static_cast<std::uint32_t>(random.below(is_long ? 6200 : 1100)), 0};
  if (random.below(rarely_signaled ? 32 : 4) == 0) sketch.flags |= kSendSignaled;
  if (random.below(4) == 0) sketch.flags |= kSendSolicited;
  if (random.below(8) == 0) sketch.flags |= kSendFence;
  sketch.remote_offset = random.below(64) * 8;
  return sketch;
}

inline SendWr request_of(const Sketch& sketch, std::uint64_t wr_id, const End& from,
                         const End& to) {
  SendWr wr;
  wr.wr_id = wr_id;
  wr.opcode = sketch.opcode;
  wr.send_flags = sketch.flags;
  wr.immediate = static_cast<std::uint32_t>(wr_id * 3);
  wr.remote_address = kTargetIova + sketch.remote_offset;
  wr.rkey = to.target_mr.rkey ^ (sketch.wrong_rkey ? 1u : 0u);
  wr.compare_add = 1;
  const bool lands =
      sketch.opcode == WrOpcode::RDMA_READ || sketch.opcode == WrOpcode::ATOMIC_FETCH_AND_ADD;
  const bool is_inline = (sketch.flags & kSendInline) != 0;
  for (std::uint32_t i = 0; i < sketch.count; ++i) {
    const std::uint64_t at = is_inline ? End::address(from.source)
                             : lands   ? kTargetIova + 4096
                                       : kSourceIova;
    const std::uint32_t lkey = lands ? from.target_mr.lkey : from.source_mr.lkey;
    wr.sges.push_back(
        {at + 16 * i, sketch.lengths[i], lkey ^ (sketch.wrong_lkey && !is_inline ? 1u : 0u)});
  }
  return wr;
}

inline bool same(const Completion& one, const Completion& other) {
  return one.wr_id == other.wr_id && one.status == other.status && one.opcode == other.opcode &&
         one.byte_len == other.byte_len && one.wc_flags == other.wc_flags &&
         one.immediate_or_rkey == other.immediate_or_rkey && one.is_receive == other.is_receive &&
         one.solicited == other.solicited && one.reason == other.reason &&
         one.by_peer == other.by_peer && one.psn == other.psn && one.key == other.key &&
         one.address == other.address && one.length == other.length &&
         one.timestamp_ns == other.timestamp_ns;
}

}  // namespace softhca::testing::twins
