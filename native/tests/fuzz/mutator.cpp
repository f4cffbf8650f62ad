#include "fuzz/mutator.hpp"

#include <algorithm>
#include <iterator>

#include "wire/icrc.hpp"

namespace softhca::fuzz {
namespace {

std::uint8_t opcode_for(QpType type, Random& random) {
  if (random.below(40) == 0) {
    return static_cast<std::uint8_t>(random.next());
  }
  static constexpr std::uint8_t kLater[] = {0x16, 0x17, 0x1c, 0x1d, 0xd3, 0xd4};
  const bool later = random.below(5) == 0;
  const std::uint8_t low = later ? kLater[random.below(std::size(kLater))]
                                 : static_cast<std::uint8_t>(random.below(0x18));
  switch (type) {
    case QpType::UC:
      return static_cast<std::uint8_t>(0x20 | low % 12);
    case QpType::UD:
      return static_cast<std::uint8_t>(0x64 + low % 2);
    case QpType::XRC_RECV:
    case QpType::XRC_SEND:
      // 0xa0 for XRC; its masked atomics are behind those of RC.
      return static_cast<std::uint8_t>(low < 0x20 ? 0xa0 | low : 0x20 | low);
    default:
      return low;
  }
}

// Mostly inside a region, often at its edges, sometimes anywhere or wrapping.
void aim(Victim& victim, std::uint64_t& address, std::uint32_t& rkey, std::uint32_t& length) {
  Random& random = victim.random();
  const Key& key = victim.keys()[random.below(2) == 0 ? random.below(victim.keys().size()) : 0];
  rkey = key.rkey;
  length = static_cast<std::uint32_t>(random.below(700));
  address = key.address + random.below(key.length);
  switch (random.below(12)) {
    case 0:
      address = key.address + key.length - random.below(16);
      break;
    case 1:
      address = key.address - random.below(16);
      break;
    case 2:
      address = ~std::uint64_t{0} - random.below(64);
      break;
    case 3:
      rkey ^= static_cast<std::uint32_t>(random.next());
      break;
    case 4:
      rkey = static_cast<std::uint32_t>(random.next());
      break;
    case 5:
      length = static_cast<std::uint32_t>(random.next());
      break;
    case 6:
      address &= ~std::uint64_t{7};
      length = 0;
      break;
    default:
      address &= ~std::uint64_t{7};
      break;
  }
}

std::uint32_t near_psn(std::uint32_t expected, Random& random) {
  switch (random.below(8)) {
    case 0:
      return static_cast<std::uint32_t>(random.next()) & 0xffffff;
    case 1:
      return (expected - 1 - static_cast<std::uint32_t>(random.below(8))) & 0xffffff;
    case 2:
      return (expected + 1 + static_cast<std::uint32_t>(random.below(8))) & 0xffffff;
    default:
      return expected;
  }
}

}  // namespace

void make_packet(Victim& victim, const Line& line, Route& route, std::vector<std::uint8_t>& out) {
  Random& random = victim.random();
  const QpAttr attr = victim.attributes(line);
  Packet packet;
  packet.bth.opcode = opcode_for(line.type, random);
  packet.info = &opcode_info(packet.bth.opcode);
  packet.bth.destination_qpn =
      random.below(100) == 0 ? static_cast<std::uint32_t>(random.next()) & 0xffffff : line.qpn;
  const bool answer = packet.info->has(kResponse);
  packet.bth.psn = near_psn(answer ? attr.sq_psn - 1 : attr.rq_psn, random);
  packet.bth.ack_request = random.below(2) == 0;
  packet.bth.solicited = random.below(2) == 0;
  aim(victim, packet.reth.virtual_address, packet.reth.rkey, packet.reth.length);
  packet.atomic.virtual_address = packet.reth.virtual_address;
  packet.atomic.rkey = packet.reth.rkey;
  packet.atomic.swap_add = random.next();
  packet.atomic.compare_mask = random.next();
  packet.atomic.swap_mask = random.next();
  packet.feth = {static_cast<std::uint8_t>(random.below(4) != 0 ? 1 : random.below(16)),
                 static_cast<std::uint8_t>(random.below(4))};
  packet.aeth.syndrome =
      random.below(4) == 0
          ? static_cast<std::uint8_t>(random.next())
          : static_cast<std::uint8_t>(random.below(3) == 0 ? 0x60 + random.below(5) : 0x1f);
  packet.xrc_srqn =
      random.below(8) == 0 ? static_cast<std::uint32_t>(random.next()) & 0xffffff : victim.srqn();
  packet.deth = {random.below(8) == 0 ? static_cast<std::uint32_t>(random.next()) : 0x11111111u, 7};
  packet.invalidate_rkey = packet.reth.rkey;

  std::size_t payload = 0;
  if (packet.info->has(kAtomicWrite) && random.below(8) != 0) {
    payload = packet.reth.length = 8;
  } else if (packet.info->has(kHasPayload)) {
    payload = random.below(3) == 0 ? 256 : random.below(300);
    if (packet.info->has(kHasReth) && random.below(3) != 0) {
      packet.reth.length = static_cast<std::uint32_t>(
          packet.info->has(kOnly) ? payload : payload + random.below(600));
    }
  }
  packet.bth.pad_count = static_cast<std::uint8_t>(-payload & 3);
  out.assign(64, 0);
  const std::size_t header_bytes = encode_headers(packet, out);
  out.resize(header_bytes + payload + packet.bth.pad_count);
  for (std::size_t at = header_bytes; at < out.size(); ++at) {
    out[at] = static_cast<std::uint8_t>(random.next());
  }
  // Bits, cuts and additions, behind which the ICRC is made good again.
  for (std::uint64_t flips = random.below(4) == 0 ? 1 + random.below(4) : 0; flips > 0; --flips) {
    out[random.below(out.size())] ^= static_cast<std::uint8_t>(1u << random.below(8));
  }
  if (random.below(20) == 0) {
    out.resize(random.below(out.size() + 1));
  } else if (random.below(20) == 0) {
    out.resize(out.size() + random.below(64), 0x77);
  }
  route = {};
  route.source = random.below(200) == 0 ? victim.own_gid() : victim.peer_gid();
  route.destination = victim.own_gid();
  route.udp_source_port = 0xc001;
  const std::size_t end = out.size();
  out.resize(end + kIcrcBytes);
  append_icrc(route, ByteSpan(out).first(end));
  if (random.below(50) == 0 && !out.empty()) {
    out[random.below(out.size())] ^= 0x40;
  }
}

}  // namespace softhca::fuzz
