#include "fuzz/local_wire.hpp"

#include <algorithm>

#include "fuzz/mutator.hpp"

namespace softhca::fuzz {
namespace {

constexpr std::size_t kMostLent = 64;
constexpr std::uint64_t kMtuBytes = 256;

}  // namespace

void LocalWire::look_at(ByteView bytes) {
  // A run of secret bytes cannot be chance.
  std::size_t run = 0;
  for (const std::uint8_t byte : bytes) {
    run = byte == Arena::kSecret ? run + 1 : 0;
    leaked_ |= run == 4;
  }
}

std::size_t LocalWire::send_short(std::span<const ShortPacket> packets) {
  std::size_t sent = 0;
  for (; sent < packets.size() && random_.below(4) != 0; ++sent) {
    ++taken_;
    look_at(packets[sent].payload);
  }
  return sent;
}

void LocalWire::send(const LocalPacket& local) {
  ++taken_;
  look_at(local.packet.payload);
  if (local.pieces.empty()) return;
  Lent lent{lent_payload_of(local.qpn, local.packet), {}};
  for (const MemoryPiece& piece : local.pieces) {
    look_at({reinterpret_cast<const std::uint8_t*>(piece.address), piece.length});
    lent.keys.push_back(piece.key >> 8);
  }
  keep(std::move(lent));
}

bool LocalWire::lend(const ShortPacket& packet, std::uint32_t qpn, std::uint32_t lkey) {
  if (random_.below(4) == 0) return false;
  ++taken_;
  look_at(packet.payload);
  keep({{qpn, packet.psn, false}, {lkey >> 8}});
  return true;
}

bool LocalWire::send_answer(const WholeAnswer& packet, std::uint32_t qpn, std::uint32_t rkey) {
  if (random_.below(4) == 0) return false;
  ++taken_;
  look_at(packet.payload);
  if (packet.payload.size() > kLocalCopiedBytes) {
    keep({{qpn, packet.acknowledge.psn, true}, {rkey >> 8}});
  }
  return true;
}

void LocalWire::keep(Lent lent) {
  if (lent_.size() == kMostLent) lent_.erase(lent_.begin());
  lent_.push_back(std::move(lent));
}

void LocalWire::recall(std::uint32_t qpn, LentPayloads which) {
  std::erase_if(
      lent_, [&](const Lent& lent) { return lent.what.qpn == qpn && lent.what.is_one_of(which); });
}

bool LocalWire::revoke(std::uint32_t key_index) {
  return std::erase_if(lent_, [&](const Lent& lent) {
           return std::ranges::count(lent.keys, key_index) != 0;
         }) != 0;
}

bool LocalWire::call_unreadable(Victim& victim, std::uint64_t now_ns) {
  if (lent_.empty() || random_.below(32) != 0) return false;
  const auto at = lent_.begin() + static_cast<std::ptrdiff_t>(random_.below(lent_.size()));
  const Lent lent = *at;
  lent_.erase(at);
  victim.adapter().payload_unreadable(lent.what, now_ns);
  return true;
}

void LocalWire::mutate(const Packet& packet) {
  const auto room = [&](std::uint64_t length) {
    bytes_.push_back(std::make_unique<std::uint8_t[]>(length));
    return bytes_.back().get();
  };
  bytes_.clear();
  pieces_.clear();
  const std::uint64_t full = std::uint64_t{packet.psns} * kMtuBytes;
  const std::uint64_t payload = random_.below(3) == 0 ? random_.below(full + 2) : full;
  const std::uint64_t count = 1 + random_.below(4);
  for (std::uint64_t left = payload; left > 0 && pieces_.size() < count;) {
    const std::uint64_t length = pieces_.size() + 1 == count ? left : 1 + random_.below(left);
    const bool is_there = random_.below(64) != 0;
    const auto address = is_there ? reinterpret_cast<std::uint64_t>(room(length)) : 8;
    pieces_.push_back({&process_space(), address, length});
    left -= length;
    if (random_.below(16) == 0) pieces_.push_back({&process_space(), 8, 0});
  }
}

void LocalWire::hand_over(Victim& victim, const Line& line, std::uint64_t now_ns) {
  if (call_unreadable(victim, now_ns)) return;
  Route route;
  std::vector<std::uint8_t> datagram;
  make_packet(victim, line, route, datagram);
  ShortPacket brief;
  if (random_.below(2) == 0 && decode_short_datagram(datagram, brief) &&
      victim.adapter().receive_short(route, {&brief, 1}, now_ns) == 1) {
    return;
  }
  PlainAcknowledge plain;
  if (random_.below(2) == 0 && datagram.size() >= kIcrcBytes &&
      decode_acknowledge(datagram.data(), datagram.size() - kIcrcBytes, plain) &&
      victim.adapter().receive_acknowledge(route, plain, now_ns)) {
    return;
  }
  if (random_.below(2) == 0 && datagram.size() >= kIcrcBytes &&
      decode_read(datagram.data(), datagram.size() - kIcrcBytes, brief) &&
      victim.adapter().receive_read(route, brief, now_ns)) {
    return;
  }
  Packet packet;
  if (decode_packet(datagram, packet) != DecodeStatus::OK || packet.info->has(kCnp) ||
      opcode_transport(packet.bth.opcode) == OpcodeTransport::UD) {
    return;
  }
  // As a neighbour has it: what may not be lent brings its payload along, and is one packet.
  const bool may_refer =
      packet.info->has(kSend | kWrite | kReadResponse) && !packet.info->has(kAtomicWrite);
  if (may_refer && random_.below(3) != 0) {
    packet.psns = static_cast<std::uint32_t>(
        1 + (random_.below(16) == 0 ? random_.below(4096) : random_.below(6)));
    mutate(packet);
    packet.payload = {};
    packet.pieces = pieces_;
    for (const MemoryPiece& piece : pieces_) packet.pieces_bytes += piece.length;
    if (packet.info->has(kHasReth) && random_.below(3) != 0) {
      packet.reth.length = static_cast<std::uint32_t>(packet.pieces_bytes);
    }
  }
  if (pieces_.size() == 1 && packet.pieces.size() == 1 && decode_short_datagram(datagram, brief)) {
    brief.psns = packet.psns;
    brief.reth = packet.reth;
    brief.payload = {reinterpret_cast<const std::uint8_t*>(pieces_[0].address), pieces_[0].length};
    if (victim.adapter().receive_lent(route, brief, process_space(), now_ns)) return;
  }
  WholeAnswer answer;
  if (packet.pieces.size() < 2 &&
      decode_answer(datagram.data(), packet.info->header_bytes, answer)) {
    answer.psns = packet.psns;
    answer.payload = packet.payload;
    if (!packet.pieces.empty()) {
      answer.payload = {reinterpret_cast<const std::uint8_t*>(pieces_[0].address),
                        pieces_[0].length};
    }
    if (victim.adapter().receive_lent(route, answer, process_space(), now_ns)) return;
  }
  static_cast<void>(victim.adapter().receive_local(route, packet, now_ns));
}

}  // namespace softhca::fuzz
