// One RoCEv2 packet as values: the headers behind UDP, decoded, and a view of the payload.
#pragma once

#include <cstdint>
#include <span>

#include "vocabulary/bytes.hpp"
#include "vocabulary/memory_piece.hpp"
#include "wire/opcode.hpp"

namespace softhca {

inline constexpr std::size_t kBthBytes = 12;
inline constexpr std::size_t kIcrcBytes = 4;
inline constexpr std::size_t kMaxPathMtuBytes = 4096;
inline constexpr std::size_t kGrhBytes = 40;
// Largest UDP payload that a conforming peer sends: BTH, XRCETH, AtomicETH or RETH and immediate,
// payload, ICRC.
inline constexpr std::size_t kMaxDatagramBytes = 12 + 4 + 28 + 4 + kMaxPathMtuBytes + 4;

// IBTA Vol 1, 9.2: base transport header.
struct Bth {
  std::uint8_t opcode = 0;
  bool solicited = false;
  bool migrated = true;        // MigReq: normal senders set it.
  std::uint8_t pad_count = 0;  // 0 to 3 bytes between payload and ICRC.
  std::uint8_t version = 0;    // TVer, must be 0.
  std::uint16_t pkey = 0xffff;
  bool fecn = false;
  bool becn = false;
  std::uint32_t destination_qpn = 0;  // 24 bits.
  bool ack_request = false;
  std::uint32_t psn = 0;  // 24 bits.
};

// IBTA Vol 1, 9.3: extended transport headers.
struct Deth {
  std::uint32_t qkey = 0;
  std::uint32_t source_qpn = 0;  // 24 bits.
};
struct Reth {
  std::uint64_t virtual_address = 0;
  std::uint32_t rkey = 0;
  std::uint32_t length = 0;  // DMALen, bytes of the whole message.
};
struct Aeth {
  std::uint8_t syndrome = 0;
  std::uint32_t msn = 0;  // 24 bits.
};
struct AtomicEth {
  std::uint64_t virtual_address = 0;
  std::uint32_t rkey = 0;
  std::uint64_t swap_add = 0;
  std::uint64_t compare = 0;  // MASKED_FETCH_ADD: the last bit of each field.
  // MASKED_COMPARE_SWAP: which bits are compared, and which are exchanged.
  std::uint64_t compare_mask = ~std::uint64_t{0};
  std::uint64_t swap_mask = ~std::uint64_t{0};
};
struct Feth {
  std::uint8_t placement_type = 0;  // 1 global visibility, 2 persistence (bits).
  std::uint8_t selectivity = 0;     // 0 range, 1 whole region.
};

// Headers that the opcode does not have keep their defaults.
struct Packet {
  Bth bth;
  const OpcodeInfo* info = nullptr;
  Deth deth;
  Reth reth;
  Aeth aeth;
  AtomicEth atomic;
  Feth feth;
  std::uint64_t atomic_original = 0;  // AtomicAckETH.
  std::uint32_t immediate = 0;        // ImmDt as a big-endian integer.
  std::uint32_t invalidate_rkey = 0;  // IETH.
  std::uint32_t xrc_srqn = 0;         // XRCETH, 24 bits.
  ByteView payload;                   // Without pad and ICRC.

  // Between adapters that share memory only: how many packets this one stands for, and where its
  // payload lies, if `payload` is empty.
  std::uint32_t psns = 1;
  std::span<const MemoryPiece> pieces;
  std::uint64_t pieces_bytes = 0;

  std::uint64_t payload_bytes() const { return payload.size() + pieces_bytes; }
};

enum class DecodeStatus : std::uint8_t {
  OK,
  TOO_SHORT,    // Shorter than BTH, the opcode's headers, pad and ICRC.
  TOO_LONG,     // Longer than kMaxDatagramBytes.
  BAD_VERSION,  // TVer is not 0.
  RESERVED_OPCODE,
  BAD_PAD,  // Pad longer than what follows the headers, or length not a multiple of four.
  UNEXPECTED_PAYLOAD,  // The opcode carries none.
};
const char* decode_status_name(DecodeStatus status);

// Decodes `datagram` (UDP payload: BTH to ICRC inclusive). Does not check the ICRC. On failure
// `packet.bth` is filled if there were twelve bytes; the rest is unspecified. `packet.payload`
// points into `datagram`.
DecodeStatus decode_packet(ByteView datagram, Packet& packet);

// Writes the BTH and the extended headers that `packet.bth.opcode` has; returns their size. `out`
// must hold 64 bytes.
std::size_t encode_headers(const Packet& packet, ByteSpan out);
// The BTH alone, in kBthBytes.
void encode_bth(const Bth& bth, std::uint8_t* out);

}  // namespace softhca
