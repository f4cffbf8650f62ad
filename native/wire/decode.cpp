// Bytes to values. Every length is checked before a byte behind it is read.
#include "wire/packet.hpp"

namespace softhca {
namespace {

constexpr std::uint8_t kSolicitedBit = 0x80;
constexpr std::uint8_t kMigratedBit = 0x40;
constexpr std::uint8_t kVersionMask = 0x0f;
constexpr std::uint8_t kFecnBit = 0x80;
constexpr std::uint8_t kBecnBit = 0x40;
constexpr std::uint8_t kAckRequestBit = 0x80;

Bth decode_bth(const std::uint8_t* at) {
  Bth bth;
  bth.opcode = at[0];
  bth.solicited = (at[1] & kSolicitedBit) != 0;
  bth.migrated = (at[1] & kMigratedBit) != 0;
  bth.pad_count = static_cast<std::uint8_t>(at[1] >> 4 & 3);
  bth.version = at[1] & kVersionMask;
  bth.pkey = load_be16(at + 2);
  bth.fecn = (at[4] & kFecnBit) != 0;
  bth.becn = (at[4] & kBecnBit) != 0;
  bth.destination_qpn = load_be24(at + 5);
  bth.ack_request = (at[8] & kAckRequestBit) != 0;
  bth.psn = load_be24(at + 9);
  return bth;
}

// Reads the headers in their order on the wire; the caller has checked that all of them are there.
// Headers that the opcode lacks get their defaults, because packets are decoded into a reused
// Packet.
void decode_extended_headers(const std::uint8_t* at, Packet& packet) {
  const OpcodeInfo& info = *packet.info;
  packet.xrc_srqn = 0;
  packet.deth = {};
  packet.feth = {};
  packet.reth = {};
  packet.atomic = {};
  packet.aeth = {};
  packet.atomic_original = 0;
  packet.immediate = 0;
  packet.invalidate_rkey = 0;
  if (info.has(kHasXrcEth)) {
    packet.xrc_srqn = load_be24(at + 1);
    at += 4;
  }
  if (info.has(kHasDeth)) {
    packet.deth = {.qkey = load_be32(at), .source_qpn = load_be24(at + 5)};
    at += 8;
  }
  if (info.has(kHasFeth)) {
    packet.feth = {.placement_type = static_cast<std::uint8_t>(at[3] & 0x0f),
                   .selectivity = static_cast<std::uint8_t>(at[3] >> 4 & 3)};
    at += 4;
  }
  if (info.has(kHasReth)) {
    packet.reth = {
        .virtual_address = load_be64(at), .rkey = load_be32(at + 8), .length = load_be32(at + 12)};
    at += 16;
  }
  if (info.has(kHasAtomicEth)) {
    packet.atomic = {.virtual_address = load_be64(at),
                     .rkey = load_be32(at + 8),
                     .swap_add = load_be64(at + 12),
                     .compare = load_be64(at + 20)};
    at += 28;
  }
  if (info.has(kHasMaskEth)) {
    packet.atomic.compare_mask = load_be64(at);
    packet.atomic.swap_mask = load_be64(at + 8);
    at += 16;
  }
  if (info.has(kHasAeth)) {
    packet.aeth = {.syndrome = at[0], .msn = load_be24(at + 1)};
    at += 4;
  }
  if (info.has(kHasAtomicAckEth)) {
    packet.atomic_original = load_be64(at);
    at += 8;
  }
  if (info.has(kHasImmDt)) {
    packet.immediate = load_be32(at);
    at += 4;
  }
  if (info.has(kHasIeth)) packet.invalidate_rkey = load_be32(at);
}

}  // namespace

DecodeStatus decode_packet(ByteView datagram, Packet& packet) {
  packet.info = nullptr;
  packet.payload = {};
  if (datagram.size() < kBthBytes) return DecodeStatus::TOO_SHORT;
  packet.bth = decode_bth(datagram.data());
  if (datagram.size() > kMaxDatagramBytes) return DecodeStatus::TOO_LONG;
  if (packet.bth.version != 0) return DecodeStatus::BAD_VERSION;

  const OpcodeInfo& info = opcode_info(packet.bth.opcode);
  if (!info.has(kKnown)) return DecodeStatus::RESERVED_OPCODE;
  packet.info = &info;
  if (datagram.size() < info.header_bytes + kIcrcBytes) return DecodeStatus::TOO_SHORT;
  if (datagram.size() % 4 != 0) return DecodeStatus::BAD_PAD;

  const std::size_t body_bytes = datagram.size() - info.header_bytes - kIcrcBytes;
  if (packet.bth.pad_count > body_bytes) return DecodeStatus::BAD_PAD;
  if (body_bytes != 0 && !info.has(kHasPayload)) return DecodeStatus::UNEXPECTED_PAYLOAD;

  decode_extended_headers(datagram.data() + kBthBytes, packet);
  packet.payload = datagram.subspan(info.header_bytes, body_bytes - packet.bth.pad_count);
  return DecodeStatus::OK;
}

const char* decode_status_name(DecodeStatus status) {
  switch (status) {
    case DecodeStatus::OK:
      return "OK";
    case DecodeStatus::TOO_SHORT:
      return "TOO_SHORT";
    case DecodeStatus::TOO_LONG:
      return "TOO_LONG";
    case DecodeStatus::BAD_VERSION:
      return "BAD_VERSION";
    case DecodeStatus::RESERVED_OPCODE:
      return "RESERVED_OPCODE";
    case DecodeStatus::BAD_PAD:
      return "BAD_PAD";
    case DecodeStatus::UNEXPECTED_PAYLOAD:
      return "UNEXPECTED_PAYLOAD";
  }
  return "UNKNOWN";
}

}  // namespace softhca
