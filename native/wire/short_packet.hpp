// SENDs and WRITEs of one packet on RC, and their acknowledgements: the packets that there are most
// of, with what they have and nothing else. Their headers are the same bytes as packet.hpp's. A
// neighbour's may stand for all packets of a message (Packet::psns).
#pragma once

#include <cstdint>

#include "vocabulary/bytes.hpp"
#include "wire/packet.hpp"
#include "wire/syndrome.hpp"

namespace softhca {

struct ShortPacket {
  std::uint8_t opcode = 0;  // One of those that is_short_opcode() knows.
  bool solicited = false;
  bool migrated = true;
  bool ack_request = false;
  std::uint16_t pkey = 0xffff;
  std::uint32_t destination_qpn = 0;
  std::uint32_t psn = 0;
  std::uint32_t psns = 1;
  std::uint32_t immediate = 0;
  Reth reth;  // WRITEs.
  ByteView payload;

  bool is_write() const { return opcode >= make_opcode(OpcodeTransport::RC, kWriteOnly); }
  // SEND_ONLY and RDMA_WRITE_ONLY are even, and with an immediate, odd.
  bool has_immediate() const { return (opcode & 1) != 0; }
  bool consumes_receive() const { return !is_write() || has_immediate(); }
  std::uint32_t last_psn() const { return (psn + psns - 1) & 0xffffff; }
  std::size_t header_bytes() const {
    return kBthBytes + (is_write() ? std::size_t{16} : 0) + (has_immediate() ? std::size_t{4} : 0);
  }
  // The bytes that it would have on the wire, from BTH to ICRC.
  std::size_t wire_bytes() const {
    return header_bytes() + ((payload.size() + 3) & ~std::size_t{3}) + kIcrcBytes +
           (psns - 1) * (kBthBytes + kIcrcBytes);
  }

 private:
  static constexpr Operation kWriteOnly = Operation::RDMA_WRITE_ONLY;
};

constexpr bool is_short_opcode(std::uint8_t opcode) {
  return (opcode & 0xfe) == make_opcode(OpcodeTransport::RC, Operation::SEND_ONLY) ||
         (opcode & 0xfe) == make_opcode(OpcodeTransport::RC, Operation::RDMA_WRITE_ONLY);
}

// The first eight bytes of its headers, which tell neither the PSN nor whether it asks for an
// acknowledgement.
constexpr std::uint64_t first_of(const ShortPacket& packet) {
  return std::uint64_t{packet.opcode} << 56 | std::uint64_t{packet.solicited} << 55 |
         std::uint64_t{packet.migrated} << 54 | std::uint64_t{packet.pkey} << 32 |
         (packet.destination_qpn & 0xffffff);
}

// Into `header_bytes()` bytes, which encode_headers() would fill alike.
inline void encode_short(const ShortPacket& packet, std::uint8_t* out) {
  store_be64(out, first_of(packet));
  store_be32(out + 8, (packet.ack_request ? 0x80000000u : 0) | (packet.psn & 0xffffff));
  out += kBthBytes;
  if (packet.is_write()) {
    store_be64(out, packet.reth.virtual_address);
    store_be32(out + 8, packet.reth.rkey);
    store_be32(out + 12, packet.reth.length);
    out += 16;
  }
  if (packet.has_immediate()) store_be32(out, packet.immediate);
}

// One whose opcode `is_known`. False: it is not, or has something in it that few have. Each byte is
// read once. The payload is left to the caller.
template <class IsKnown>
inline bool decode_request(const std::uint8_t* headers, std::size_t bytes, IsKnown is_known,
                           ShortPacket& packet) {
  constexpr std::uint64_t kRare = std::uint64_t{0x3f} << 48 | std::uint64_t{0xff} << 24;
  if (bytes < kBthBytes) return false;
  const std::uint64_t first = load_be64(headers);
  packet.opcode = static_cast<std::uint8_t>(first >> 56);
  // Pad count, version, FECN and BECN, and reserved bits besides.
  if ((first & kRare) != 0 || !is_known(packet.opcode) || bytes != packet.header_bytes()) {
    return false;
  }
  const std::uint32_t last = load_be32(headers + 8);
  packet.solicited = (first >> 55 & 1) != 0;
  packet.migrated = (first >> 54 & 1) != 0;
  packet.pkey = static_cast<std::uint16_t>(first >> 32);
  packet.destination_qpn = static_cast<std::uint32_t>(first & 0xffffff);
  packet.ack_request = last >> 31 != 0;
  packet.psn = last & 0xffffff;
  headers += kBthBytes;
  if (packet.is_write()) {
    packet.reth = {.virtual_address = load_be64(headers),
                   .rkey = load_be32(headers + 8),
                   .length = load_be32(headers + 12)};
    headers += 16;
  }
  packet.immediate = packet.has_immediate() ? load_be32(headers) : 0;
  return true;
}

inline bool decode_short(const std::uint8_t* headers, std::size_t bytes, ShortPacket& packet) {
  return decode_request(headers, bytes, is_short_opcode, packet);
}

// Nothing is behind its BTH, and it is like another but for the PSN and whether it asks: `first` is
// what first_of() says of that. False as well if `like` is not of that kind.
inline bool is_alike(const std::uint8_t* headers, std::size_t bytes, const ShortPacket& like,
                     std::uint64_t first) {
  return bytes == kBthBytes && load_be64(headers) == first && like.header_bytes() == bytes;
}

// In what is like it, what may differ.
inline void decode_rest(const std::uint8_t* headers, ShortPacket& packet) {
  const std::uint32_t last = load_be32(headers + 8);
  packet.ack_request = last >> 31 != 0;
  packet.psn = last & 0xffffff;
}

// A request for a READ has the fields of a WRITE without bytes.
inline constexpr std::uint8_t kReadRequestOpcode =
    make_opcode(OpcodeTransport::RC, Operation::RDMA_READ_REQUEST);

inline bool decode_read(const std::uint8_t* headers, std::size_t bytes, ShortPacket& packet) {
  return decode_request(
      headers, bytes, [](std::uint8_t opcode) { return opcode == kReadRequestOpcode; }, packet);
}

// A whole datagram, from BTH to ICRC. False as above, or where there is padding to be.
inline bool decode_short_datagram(ByteView datagram, ShortPacket& packet) {
  if (datagram.size() < kBthBytes + kIcrcBytes || !is_short_opcode(datagram[0])) return false;
  packet.opcode = datagram[0];
  const std::size_t header_bytes = packet.header_bytes();
  if (datagram.size() < header_bytes + kIcrcBytes || datagram.size() % 4 != 0) return false;
  packet.payload = datagram.subspan(header_bytes, datagram.size() - header_bytes - kIcrcBytes);
  return decode_short(datagram.data(), header_bytes, packet);
}

// An ACKNOWLEDGE on RC that says nothing but that everything has come up to its PSN.
struct PlainAcknowledge {
  static constexpr std::uint8_t kOpcode = make_opcode(OpcodeTransport::RC, Operation::ACKNOWLEDGE);
  static constexpr std::size_t kHeaderBytes = kBthBytes + 4;
  static constexpr std::size_t kWireBytes = kHeaderBytes + kIcrcBytes;

  bool migrated = true;
  std::uint16_t pkey = 0xffff;
  std::uint32_t destination_qpn = 0;
  std::uint32_t psn = 0;
  std::uint32_t msn = 0;
};

// Into `kHeaderBytes`, which encode_headers() would fill alike.
inline void encode_acknowledge(const PlainAcknowledge& packet, std::uint8_t* out,
                               std::uint8_t opcode = PlainAcknowledge::kOpcode) {
  store_be64(out, std::uint64_t{opcode} << 56 | std::uint64_t{packet.migrated} << 54 |
                      std::uint64_t{packet.pkey} << 32 | (packet.destination_qpn & 0xffffff));
  store_be32(out + 8, packet.psn & 0xffffff);
  store_be32(out + kBthBytes, std::uint32_t{kSyndromeAck} << 24 | (packet.msn & 0xffffff));
}

// One with an AETH. False: it is none of this opcode, or has something in it that few have. Each
// byte is read once.
inline bool decode_acknowledging(std::uint8_t opcode, const std::uint8_t* headers,
                                 std::size_t bytes, PlainAcknowledge& packet) {
  // All of the second byte but MigReq, and the reserved byte.
  constexpr std::uint64_t kRare = std::uint64_t{0xbf} << 48 | std::uint64_t{0xff} << 24;
  if (bytes != PlainAcknowledge::kHeaderBytes) return false;
  const std::uint64_t first = load_be64(headers);
  const std::uint32_t last = load_be32(headers + 8);
  const std::uint32_t aeth = load_be32(headers + kBthBytes);
  if (first >> 56 != opcode || (first & kRare) != 0 || last >> 24 != 0 ||
      aeth >> 24 != kSyndromeAck) {
    return false;
  }
  packet.migrated = (first >> 54 & 1) != 0;
  packet.pkey = static_cast<std::uint16_t>(first >> 32);
  packet.destination_qpn = static_cast<std::uint32_t>(first & 0xffffff);
  packet.psn = last & 0xffffff;
  packet.msn = aeth & 0xffffff;
  return true;
}

inline bool decode_acknowledge(const std::uint8_t* headers, std::size_t bytes,
                               PlainAcknowledge& packet) {
  return decode_acknowledging(PlainAcknowledge::kOpcode, headers, bytes, packet);
}

// The whole answer to a READ as one packet: an acknowledgement that brings bytes.
struct WholeAnswer {
  static constexpr std::uint8_t kOpcode =
      make_opcode(OpcodeTransport::RC, Operation::RDMA_READ_RESPONSE_ONLY);

  PlainAcknowledge acknowledge;
  std::uint32_t psns = 1;
  ByteView payload;

  // The bytes that its packets would have on the wire; of several the last has an AETH too.
  std::size_t wire_bytes() const {
    return PlainAcknowledge::kWireBytes + ((payload.size() + 3) & ~std::size_t{3}) +
           (psns - 1) * (kBthBytes + kIcrcBytes) + (psns > 1 ? 4 : 0);
  }
};

inline void encode_answer(const WholeAnswer& packet, std::uint8_t* out) {
  encode_acknowledge(packet.acknowledge, out, WholeAnswer::kOpcode);
}

inline bool decode_answer(const std::uint8_t* headers, std::size_t bytes, WholeAnswer& packet) {
  return decode_acknowledging(WholeAnswer::kOpcode, headers, bytes, packet.acknowledge);
}

// The same packet with everything that packets may have; and the other way round, false if it has
// more than a short one.
Packet packet_of(const ShortPacket& packet);
Packet packet_of(const PlainAcknowledge& packet);
Packet packet_of(const WholeAnswer& packet);
bool short_form(const Packet& packet, ShortPacket& out);
bool short_form(const Packet& packet, PlainAcknowledge& out);

}  // namespace softhca
