// The BTH opcode table (IBTA Vol 1, table 35; Annex A14 for XRC; A19 for FLUSH and ATOMIC WRITE).
#pragma once

#include <cstdint>

namespace softhca {

// Top three bits of an opcode. The last two are of the manufacturers' range: ours hold the masked
// atomics of RC and XRC (docs/decisions/0012-masked-atomics.md).
enum class OpcodeTransport : std::uint8_t {
  RC = 0,
  UC = 1,
  RD = 2,
  UD = 3,
  CNP = 4,
  XRC = 5,
  MASKED_RC = 6,
  MASKED_XRC = 7
};

// Low five bits of an opcode: the same operation in every transport that has it.
enum class Operation : std::uint8_t {
  SEND_FIRST = 0x00,
  SEND_MIDDLE = 0x01,
  SEND_LAST = 0x02,
  SEND_LAST_WITH_IMMEDIATE = 0x03,
  SEND_ONLY = 0x04,
  SEND_ONLY_WITH_IMMEDIATE = 0x05,
  RDMA_WRITE_FIRST = 0x06,
  RDMA_WRITE_MIDDLE = 0x07,
  RDMA_WRITE_LAST = 0x08,
  RDMA_WRITE_LAST_WITH_IMMEDIATE = 0x09,
  RDMA_WRITE_ONLY = 0x0a,
  RDMA_WRITE_ONLY_WITH_IMMEDIATE = 0x0b,
  RDMA_READ_REQUEST = 0x0c,
  RDMA_READ_RESPONSE_FIRST = 0x0d,
  RDMA_READ_RESPONSE_MIDDLE = 0x0e,
  RDMA_READ_RESPONSE_LAST = 0x0f,
  RDMA_READ_RESPONSE_ONLY = 0x10,
  ACKNOWLEDGE = 0x11,
  ATOMIC_ACKNOWLEDGE = 0x12,
  COMPARE_SWAP = 0x13,
  FETCH_ADD = 0x14,
  SEND_LAST_WITH_INVALIDATE = 0x16,
  SEND_ONLY_WITH_INVALIDATE = 0x17,
  FLUSH = 0x1c,
  ATOMIC_WRITE = 0x1d,
};

// Facts about one opcode. `kKnown` is absent for reserved values. Requests of a single packet
// (READ, atomics, FLUSH, ATOMIC WRITE) are kOnly; acknowledgements have no position.
enum OpcodeFlags : std::uint32_t {
  kKnown = 1u << 0,
  kSend = 1u << 1,
  kWrite = 1u << 2,
  kReadRequest = 1u << 3,
  kReadResponse = 1u << 4,
  kAtomicRequest = 1u << 5,
  kAcknowledge = 1u << 6,  // ACKNOWLEDGE and ATOMIC_ACKNOWLEDGE.
  kFirst = 1u << 7,
  kMiddle = 1u << 8,
  kLast = 1u << 9,
  kOnly = 1u << 10,
  kHasReth = 1u << 11,
  kHasAeth = 1u << 12,
  kHasAtomicEth = 1u << 13,
  kHasAtomicAckEth = 1u << 14,
  kHasImmDt = 1u << 15,
  kHasIeth = 1u << 16,
  kHasDeth = 1u << 17,
  kHasXrcEth = 1u << 18,
  kHasFeth = 1u << 19,
  kHasPayload = 1u << 20,  // May carry a payload; others must not.
  kRequest = 1u << 21,     // Travels from requester to responder.
  kResponse = 1u << 22,
  kFlush = 1u << 23,
  kAtomicWrite = 1u << 24,
  kCnp = 1u << 25,
  kMasked = 1u << 26,      // An atomic that works on the bits of a mask.
  kHasMaskEth = 1u << 27,  // Ours: compare mask and swap mask, behind the AtomicETH.
};

// Requests that change or confirm at most one word and are answered by one packet.
inline constexpr std::uint32_t kTakesAtomicResource = kAtomicRequest | kFlush | kAtomicWrite;

struct OpcodeInfo {
  const char* name = nullptr;  // "RC_SEND_FIRST"; null when reserved.
  std::uint32_t flags = 0;
  std::uint8_t header_bytes = 12;  // BTH and all extended headers.

  bool has(std::uint32_t mask) const { return (flags & mask) != 0; }
};

const OpcodeInfo& opcode_info(std::uint8_t opcode);

inline constexpr std::uint8_t make_opcode(OpcodeTransport transport, Operation operation) {
  return static_cast<std::uint8_t>(static_cast<unsigned>(transport) << 5 |
                                   static_cast<unsigned>(operation));
}
inline constexpr OpcodeTransport opcode_transport(std::uint8_t opcode) {
  return static_cast<OpcodeTransport>(opcode >> 5);
}
// The service type whose queue pairs an opcode is for.
inline constexpr OpcodeTransport queue_pair_transport(std::uint8_t opcode) {
  switch (opcode_transport(opcode)) {
    case OpcodeTransport::MASKED_RC:
      return OpcodeTransport::RC;
    case OpcodeTransport::MASKED_XRC:
      return OpcodeTransport::XRC;
    default:
      return opcode_transport(opcode);
  }
}
inline constexpr Operation opcode_operation(std::uint8_t opcode) {
  return static_cast<Operation>(opcode & 0x1f);
}

inline constexpr std::uint8_t kCnpOpcode = 0x81;

}  // namespace softhca
