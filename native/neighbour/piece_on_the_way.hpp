// What a record says of a payload that stays where it is.
#pragma once

#include <cstddef>
#include <cstdint>

#include "neighbour/shared_ring.hpp"
#include "transport/local_packet.hpp"
#include "wire/packet.hpp"

namespace softhca {

// Where a piece of it is: in a buffer that both have mapped, in the memory of a process that the
// sender serves, or in the sender's own.
struct [[gnu::packed]] PieceOnTheWay {
  std::uint64_t address = 0;  // Or the offset in the buffer.
  std::uint64_t buffer = 0;   // 0: none. With kForeign: the number of a memory.
  std::uint32_t length = 0;
};
// A slot has room for one, behind BTH and RETH.
static_assert(kBthBytes + 16 + sizeof(PieceOnTheWay) <= kInlineBytes);
static_assert(kLocalPacketBytes <= UINT32_MAX);

// Pieces of one payload.
inline constexpr std::size_t kMaxPieces = 256;

inline constexpr std::uint64_t kForeign = std::uint64_t{1} << 63;

}  // namespace softhca
