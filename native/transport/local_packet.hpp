// A packet on its way to an adapter that shares memory with this one: as values, and with its
// payload where the sender has it. It may stand for several packets of a message, one behind the
// other (Packet::psns).
#pragma once

#include <cstdint>
#include <vector>

#include "memory/payload.hpp"
#include "vocabulary/memory_piece.hpp"
#include "vocabulary/route.hpp"
#include "wire/packet.hpp"

namespace softhca {

// Payload bytes that one packet stands for at most. The adapter is locked while they are copied.
inline constexpr std::uint32_t kLocalPacketBytes = 1024 * 1024;
// Payloads up to this size are copied by the sender, which costs less than saying where they are.
inline constexpr std::uint32_t kLocalCopiedBytes = 1024;

// Payload bytes that a packet brings with it at most, where they cannot stay.
inline constexpr std::uint32_t kLocalBroughtBytes = 32 * 1024;

struct LocalPacket {
  Route route;
  Packet packet;
  std::vector<MemoryPiece> pieces;  // What `packet.pieces` views.
  std::uint32_t qpn = 0;
};

inline Payload payload_of(const Packet& packet) {
  return {packet.payload, packet.pieces, packet.pieces_bytes};
}

// The bytes that the packets would have on the wire, from BTH to ICRC.
std::uint64_t wire_bytes(const Packet& packet);

}  // namespace softhca
