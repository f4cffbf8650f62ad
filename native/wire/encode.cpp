// Values to bytes; reserved bits are written as zero.
#include "wire/packet.hpp"

namespace softhca {
namespace {

// The AETH leads its word with the syndrome; XRCETH and the QPN of DETH lead theirs with a reserved
// byte.
void store_byte_and_be24(std::uint8_t* out, std::uint8_t first, std::uint32_t rest) {
  out[0] = first;
  store_be24(out + 1, rest);
}

}  // namespace

std::size_t encode_headers(const Packet& packet, ByteSpan out) {
  const OpcodeInfo& info = opcode_info(packet.bth.opcode);
  encode_bth(packet.bth, out.data());
  std::uint8_t* at = out.data() + kBthBytes;
  if (info.has(kHasXrcEth)) {
    store_byte_and_be24(at, 0, packet.xrc_srqn);
    at += 4;
  }
  if (info.has(kHasDeth)) {
    store_be32(at, packet.deth.qkey);
    store_byte_and_be24(at + 4, 0, packet.deth.source_qpn);
    at += 8;
  }
  if (info.has(kHasFeth)) {
    store_be32(at, static_cast<std::uint32_t>((packet.feth.placement_type & 0x0f) |
                                              (packet.feth.selectivity & 3) << 4));
    at += 4;
  }
  if (info.has(kHasReth)) {
    store_be64(at, packet.reth.virtual_address);
    store_be32(at + 8, packet.reth.rkey);
    store_be32(at + 12, packet.reth.length);
    at += 16;
  }
  if (info.has(kHasAtomicEth)) {
    store_be64(at, packet.atomic.virtual_address);
    store_be32(at + 8, packet.atomic.rkey);
    store_be64(at + 12, packet.atomic.swap_add);
    store_be64(at + 20, packet.atomic.compare);
    at += 28;
  }
  if (info.has(kHasMaskEth)) {
    store_be64(at, packet.atomic.compare_mask);
    store_be64(at + 8, packet.atomic.swap_mask);
    at += 16;
  }
  if (info.has(kHasAeth)) {
    store_byte_and_be24(at, packet.aeth.syndrome, packet.aeth.msn);
    at += 4;
  }
  if (info.has(kHasAtomicAckEth)) {
    store_be64(at, packet.atomic_original);
    at += 8;
  }
  if (info.has(kHasImmDt)) {
    store_be32(at, packet.immediate);
    at += 4;
  }
  if (info.has(kHasIeth)) store_be32(at, packet.invalidate_rkey);
  return info.header_bytes;
}

// In two words: bytes that were stored one by one are slow to load together, as the ICRC loads
// them.
void encode_bth(const Bth& bth, std::uint8_t* out) {
  const auto bit = [](bool set, int place) { return std::uint64_t{set} << place; };
  const std::uint64_t first = std::uint64_t{bth.opcode} << 56 | bit(bth.solicited, 55) |
                              bit(bth.migrated, 54) | std::uint64_t{bth.pad_count & 3u} << 52 |
                              std::uint64_t{bth.version & 0x0fu} << 48 |
                              std::uint64_t{bth.pkey} << 32 | bit(bth.fecn, 31) |
                              bit(bth.becn, 30) | (bth.destination_qpn & 0xffffff);
  store_be64(out, first);
  store_be32(out + 8, (bth.ack_request ? 0x80000000u : 0) | (bth.psn & 0xffffff));
}

}  // namespace softhca
