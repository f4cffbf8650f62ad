#include "wire/icrc.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "wire/crc32.hpp"
#include "wire/crc32_polynomial.hpp"
#include "wire/ip.hpp"
#include "wire/packet.hpp"

namespace softhca {
namespace {

constexpr std::size_t kIpv4Bytes = 20;
constexpr std::size_t kIpv6Bytes = 40;
constexpr std::size_t kUdpBytes = 8;
constexpr std::uint8_t kUdpProtocol = 17;
constexpr std::uint16_t kDontFragment = 0x4000;
// The head of a packet that is joined to its headers.
constexpr std::size_t kJoinedBytes = 80;
constexpr std::size_t kMaxUdpPayloadBytes = 65535 - kIpv4Bytes - kUdpBytes;

// Eight bytes of ones stand for the local route header that RoCE does not have (Annex A17.3.3).
constexpr std::uint32_t crc_of_absent_lrh() {
  std::uint32_t state = 0xffffffff;
  for (int byte = 0; byte < 8; ++byte) {
    state ^= 0xff;
    for (int bit = 0; bit < 8; ++bit) state = crc32_polynomial::times_x(state);
  }
  return ~state;
}
constexpr std::uint32_t kSeed = crc_of_absent_lrh();

// Writes the headers as the ICRC sees them: what switches and routers may change counts as ones.
std::size_t encode_masked_ip_udp(const Route& route, std::size_t datagram_bytes,
                                 std::uint8_t* out) {
  if (route.is_ipv4()) {
    out[0] = 0x45;  // Version 4, five words: no options.
    out[1] = 0xff;  // Type of service.
    store_be16(out + 2, static_cast<std::uint16_t>(kIpv4Bytes + kUdpBytes + datagram_bytes));
    store_be16(out + 4, route.identification);
    store_be16(out + 6, kDontFragment);
    out[8] = 0xff;  // Time to live.
    out[9] = kUdpProtocol;
    out[10] = out[11] = 0xff;  // Header checksum.
    std::memcpy(out + 12, route.source.ipv4(), 4);
    std::memcpy(out + 16, route.destination.ipv4(), 4);
    store_be16(out + 20, route.udp_source_port);
    store_be16(out + 22, route.udp_destination_port);
    store_be16(out + 24, static_cast<std::uint16_t>(kUdpBytes + datagram_bytes));
    out[26] = out[27] = 0xff;  // UDP checksum.
    return kIpv4Bytes + kUdpBytes;
  }
  const std::size_t bytes = encode_ip_udp(route, datagram_bytes, {out, kIpv6Bytes + kUdpBytes});
  out[0] |= 0x0f;  // Traffic class and flow label.
  out[1] = out[2] = out[3] = 0xff;
  out[7] = 0xff;                           // Hop limit.
  out[bytes - 2] = out[bytes - 1] = 0xff;  // UDP checksum.
  return bytes;
}

// x^(8 n), or its inverse, for n below 65536, as the product of one entry of each table. With them
// a difference between two ICRCs is carried back to the bytes that caused it, or forth, at any
// packet length.
struct Powers {
  std::array<std::uint32_t, 256> by_bytes{};
  std::array<std::uint32_t, 256> by_256_bytes{};

  std::uint32_t of(std::size_t bytes) const {
    return crc32_polynomial::multiply(by_bytes[bytes % 256], by_256_bytes[bytes / 256]);
  }
};

constexpr Powers build_powers(std::uint32_t (*next)(std::uint32_t)) {
  Powers powers;
  std::uint32_t power = crc32_polynomial::kOne;
  for (std::uint32_t& entry : powers.by_bytes) {
    entry = power;
    for (int bit = 0; bit < 8; ++bit) power = next(power);
  }
  const std::uint32_t step = power;
  power = crc32_polynomial::kOne;
  for (std::uint32_t& entry : powers.by_256_bytes) {
    entry = power;
    power = crc32_polynomial::multiply(power, step);
  }
  return powers;
}

constexpr Powers kPowers = build_powers(crc32_polynomial::times_x);
constexpr Powers kInversePowers = build_powers(crc32_polynomial::over_x);

// The second word of the IPv4 header (identification, flags, fragment offset) as a CRC register
// sees it: its first byte is the least significant.
constexpr std::uint32_t kIdentificationBits = 0x0000ffff;
constexpr std::uint32_t kDontFragmentBit = 0x00400000;

// The one change of that word which explains `difference` between two ICRCs, when
// `bytes_behind_word` bytes follow it. A CRC is linear: a changed word, taken as a polynomial, adds
// itself times x^32 and x^8 for each byte behind it. Every difference has exactly one such word;
// whether it changes only unknown bits is for the caller to see.
std::uint32_t changed_word(std::uint32_t difference, std::size_t bytes_behind_word) {
  return crc32_polynomial::multiply(kInversePowers.of(bytes_behind_word + 4), difference);
}

// Of `datagram_bytes` with their ICRC, which it does not cover itself.
std::size_t bytes_behind_identification(std::size_t datagram_bytes) {
  constexpr std::size_t kIpv4BytesBehindWord = kIpv4Bytes - 8;
  return kIpv4BytesBehindWord + kUdpBytes + datagram_bytes - kIcrcBytes;
}

std::uint16_t swapped(std::uint32_t value) {
  return __builtin_bswap16(static_cast<std::uint16_t>(value));
}

std::uint32_t load_le32(const std::uint8_t* at) { return __builtin_bswap32(load_be32(at)); }

}  // namespace

std::uint32_t icrc_of_start(const Route& route, ByteView start, std::size_t transport_bytes) {
  // What is joined to the headers makes one piece with them.
  std::array<std::uint8_t, kIpv6Bytes + kUdpBytes + kJoinedBytes> head;
  const std::size_t header_bytes =
      encode_masked_ip_udp(route, transport_bytes + kIcrcBytes, head.data());
  const std::size_t joined_bytes = std::min(start.size(), kJoinedBytes);
  std::copy_n(start.data(), joined_bytes, head.data() + header_bytes);
  head[header_bytes + 4] = 0xff;  // The byte of the BTH that holds FECN and BECN.
  const std::uint32_t crc = crc32(kSeed, ByteView(head.data(), header_bytes + joined_bytes));
  return joined_bytes == start.size() ? crc : crc32(crc, start.subspan(joined_bytes));
}

std::uint32_t icrc_of(const Route& route, ByteView transport) {
  return icrc_of_start(route, transport, transport.size());
}

void append_icrc(const Route& route, ByteSpan transport) {
  const std::uint32_t icrc = icrc_of(route, transport);
  store_be32(transport.data() + transport.size(), __builtin_bswap32(icrc));
}

IdentificationChange::IdentificationChange(std::size_t datagram_bytes)
    : power_(kPowers.of(bytes_behind_identification(datagram_bytes) + 4)) {}

std::uint32_t IdentificationChange::operator()(std::uint16_t identification) const {
  return crc32_polynomial::multiply(power_, swapped(identification));
}

bool may_hold_icrc(ByteView datagram) {
  return datagram.size() >= kBthBytes + kIcrcBytes && datagram.size() <= kMaxUdpPayloadBytes;
}

IcrcVerdict check_icrc(const Route& route, ByteView datagram, IcrcLevel level) {
  if (level != IcrcLevel::OFF && may_hold_icrc(datagram)) {
    const ByteView transport = datagram.first(datagram.size() - kIcrcBytes);
    return judge_icrc(route, datagram, level, icrc_of(route, transport));
  }
  return {.good = may_hold_icrc(datagram), .identification = route.identification};
}

IcrcVerdict judge_icrc(const Route& route, ByteView datagram, IcrcLevel level, std::uint32_t icrc) {
  IcrcVerdict verdict;
  verdict.identification = route.identification;
  const std::uint32_t difference = icrc ^ load_le32(datagram.data() + datagram.size() - kIcrcBytes);
  verdict.good = difference == 0;
  if (verdict.good || level == IcrcLevel::STRICT || !route.is_ipv4()) return verdict;

  const std::uint32_t change =
      changed_word(difference, bytes_behind_identification(datagram.size()));
  if ((change & ~(kIdentificationBits | kDontFragmentBit)) != 0) return verdict;
  verdict.good = true;
  verdict.solved = true;
  verdict.identification = route.identification ^ swapped(change & kIdentificationBits);
  verdict.dont_fragment = (change & kDontFragmentBit) == 0;
  return verdict;
}

}  // namespace softhca
