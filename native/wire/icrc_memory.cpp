#include "wire/icrc_memory.hpp"

#include <cstring>

#include "wire/crc32.hpp"
#include "wire/packet.hpp"

namespace softhca {
namespace {

// Of the BTH: all but the bytes of the acknowledgement request and the PSN.
constexpr std::size_t kSharedBytes = 8;
// FECN and BECN are in the fifth byte, which counts as ones.
constexpr std::size_t kMaskedByte = 4;

std::uint64_t shared_part(ByteView transport) {
  std::array<std::uint8_t, kSharedBytes> bytes;
  std::memcpy(bytes.data(), transport.data(), bytes.size());
  bytes[kMaskedByte] = 0xff;
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data(), bytes.size());
  return word;
}

void put_behind(ByteSpan transport, std::uint32_t icrc) {
  store_be32(transport.data() + transport.size(), __builtin_bswap32(icrc));
}

}  // namespace

std::uint32_t TrainChanges::of(std::size_t datagram_bytes, std::size_t place) {
  Length& known = lengths_[datagram_bytes / 4 % lengths_.size()];
  if (known.datagram_bytes != datagram_bytes) {
    known.datagram_bytes = datagram_bytes;
    const IdentificationChange identification(datagram_bytes);
    // The change of a sum is the sum of the changes.
    for (std::size_t bit = 1; bit < known.by_place.size(); bit *= 2) {
      const std::uint32_t by = identification(static_cast<std::uint16_t>(bit));
      for (std::size_t i = 0; i < bit; ++i) known.by_place[bit + i] = known.by_place[i] ^ by;
    }
  }
  return known.by_place[place];
}

std::uint32_t IcrcMemory::start_of(const Route& route, ByteView transport) {
  const std::uint64_t bth = shared_part(transport);
  const std::uint32_t ports =
      std::uint32_t{route.udp_source_port} << 16 | route.udp_destination_port;
  const std::uint64_t mixed = (bth ^ transport.size()) * 0x9e3779b97f4a7c15u;
  Start& start = starts_[mixed >> 60];
  if (start.transport_bytes != transport.size() || start.bth != bth || start.ports != ports ||
      start.source != route.source || start.destination != route.destination) {
    Route first = route;
    first.identification = 0;
    start = {route.source, route.destination,
             ports,        transport.size(),
             bth,          icrc_of_start(first, transport.first(kSharedBytes), transport.size())};
  }
  return start.crc;
}

std::uint32_t IcrcMemory::identified(std::uint32_t crc, const Route& route,
                                     std::size_t transport_bytes) {
  if (route.identification == 0 || !route.is_ipv4()) return crc;
  return crc ^ changes_.of(transport_bytes + kIcrcBytes, route.identification);
}

std::uint32_t IcrcMemory::icrc_of(const Route& route, ByteView transport) {
  if (transport.size() < kBthBytes || route.identification >= kMaxTrainPackets) {
    return softhca::icrc_of(route, transport);
  }
  const std::uint32_t crc = crc32(start_of(route, transport), transport.subspan(kSharedBytes));
  return identified(crc, route, transport.size());
}

void IcrcMemory::append(const Route& route, ByteSpan transport) {
  put_behind(transport, icrc_of(route, transport));
}

std::uint32_t IcrcMemory::before_payload(const Route& route, ByteView transport,
                                         std::size_t header_bytes) {
  return crc32(start_of(route, transport),
               transport.subspan(kSharedBytes, header_bytes - kSharedBytes));
}

void IcrcMemory::append_summed(const Route& route, ByteSpan transport, std::uint32_t crc) {
  put_behind(transport, identified(crc, route, transport.size()));
}

IcrcVerdict IcrcMemory::check(const Route& route, ByteView datagram, IcrcLevel level) {
  if (level == IcrcLevel::OFF || !may_hold_icrc(datagram)) {
    return check_icrc(route, datagram, level);
  }
  const ByteView transport = datagram.first(datagram.size() - kIcrcBytes);
  return judge_icrc(route, datagram, level, icrc_of(route, transport));
}

}  // namespace softhca
