#include "wire/ip.hpp"

namespace softhca {
namespace {

constexpr std::size_t kIpv4Bytes = 20;
constexpr std::size_t kIpv6Bytes = 40;
constexpr std::size_t kUdpBytes = 8;
constexpr std::uint8_t kUdpProtocol = 17;
constexpr std::uint16_t kDontFragment = 0x4000;
constexpr std::uint16_t kMoreFragments = 0x2000;
constexpr std::uint16_t kFragmentOffsetMask = 0x1fff;

// RFC 1071: the ones' complement of the ones' complement sum.
std::uint32_t sum_words(std::uint32_t sum, ByteView bytes) {
  std::size_t i = 0;
  for (; i + 1 < bytes.size(); i += 2) sum += load_be16(bytes.data() + i);
  if (i < bytes.size()) sum += static_cast<std::uint32_t>(bytes[i] << 8);
  return sum;
}

std::uint16_t fold_sum(std::uint32_t sum) {
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

// 0 over a header that holds its own checksum.
std::uint16_t header_checksum(const std::uint8_t* header, std::size_t bytes) {
  return fold_sum(sum_words(0, {header, bytes}));
}

void encode_ipv4(const Route& route, std::size_t ip_payload_bytes, std::uint8_t* out) {
  out[0] = 0x45;  // Version 4, five words: no options.
  out[1] = route.traffic_class;
  store_be16(out + 2, static_cast<std::uint16_t>(kIpv4Bytes + ip_payload_bytes));
  store_be16(out + 4, route.identification);
  store_be16(out + 6, kDontFragment);
  out[8] = route.hop_limit;
  out[9] = kUdpProtocol;
  store_be16(out + 10, 0);
  std::memcpy(out + 12, route.source.ipv4(), 4);
  std::memcpy(out + 16, route.destination.ipv4(), 4);
  store_be16(out + 10, header_checksum(out, kIpv4Bytes));
}

void encode_ipv6(const Route& route, std::size_t ip_payload_bytes, std::uint8_t* out) {
  store_be32(out,
             6u << 28 | std::uint32_t{route.traffic_class} << 20 | (route.flow_label & 0xfffff));
  store_be16(out + 4, static_cast<std::uint16_t>(ip_payload_bytes));
  out[6] = kUdpProtocol;
  out[7] = route.hop_limit;
  std::memcpy(out + 8, route.source.raw.data(), 16);
  std::memcpy(out + 24, route.destination.raw.data(), 16);
}

bool parse_udp(ByteView udp, IpUdpView& view) {
  if (udp.size() < kUdpBytes) return false;
  const std::size_t udp_bytes = load_be16(udp.data() + 4);
  if (udp_bytes < kUdpBytes || udp_bytes > udp.size()) return false;
  view.route.udp_source_port = load_be16(udp.data());
  view.route.udp_destination_port = load_be16(udp.data() + 2);
  view.datagram = udp.subspan(kUdpBytes, udp_bytes - kUdpBytes);
  return true;
}

bool parse_ipv4(ByteView packet, IpUdpView& view) {
  if (packet.size() < kIpv4Bytes) return false;
  const std::uint8_t* header = packet.data();
  const std::size_t header_bytes = std::size_t{4} * (header[0] & 0x0f);
  const std::size_t total_bytes = load_be16(header + 2);
  if (header_bytes < kIpv4Bytes || header_bytes > total_bytes) return false;
  if (total_bytes > packet.size()) return false;
  const std::uint16_t fragment = load_be16(header + 6);
  if ((fragment & (kMoreFragments | kFragmentOffsetMask)) != 0) return false;
  if (header[9] != kUdpProtocol) return false;

  view.dont_fragment = (fragment & kDontFragment) != 0;
  view.header_checksum_good = header_checksum(header, header_bytes) == 0;
  view.route.traffic_class = header[1];
  view.route.identification = load_be16(header + 4);
  view.route.hop_limit = header[8];
  view.route.flow_label = 0;
  view.route.source = Gid::from_ipv4(header + 12);
  view.route.destination = Gid::from_ipv4(header + 16);
  return parse_udp(packet.subspan(header_bytes, total_bytes - header_bytes), view);
}

bool parse_ipv6(ByteView packet, IpUdpView& view) {
  if (packet.size() < kIpv6Bytes) return false;
  const std::uint8_t* header = packet.data();
  const std::size_t payload_bytes = load_be16(header + 4);
  if (payload_bytes > packet.size() - kIpv6Bytes) return false;
  if (header[6] != kUdpProtocol) return false;

  const std::uint32_t first_word = load_be32(header);
  view.dont_fragment = true;
  view.header_checksum_good = true;
  view.route.traffic_class = static_cast<std::uint8_t>(first_word >> 20);
  view.route.flow_label = first_word & 0xfffff;
  view.route.identification = 0;
  view.route.hop_limit = header[7];
  std::memcpy(view.route.source.raw.data(), header + 8, 16);
  std::memcpy(view.route.destination.raw.data(), header + 24, 16);
  return parse_udp(packet.subspan(kIpv6Bytes, payload_bytes), view);
}

}  // namespace

std::size_t encode_ip_udp(const Route& route, std::size_t datagram_bytes, ByteSpan out) {
  const std::size_t udp_bytes = kUdpBytes + datagram_bytes;
  const std::size_t ip_bytes = route.is_ipv4() ? kIpv4Bytes : kIpv6Bytes;
  if (route.is_ipv4()) {
    encode_ipv4(route, udp_bytes, out.data());
  } else {
    encode_ipv6(route, udp_bytes, out.data());
  }
  std::uint8_t* udp = out.data() + ip_bytes;
  store_be16(udp, route.udp_source_port);
  store_be16(udp + 2, route.udp_destination_port);
  store_be16(udp + 4, static_cast<std::uint16_t>(udp_bytes));
  store_be16(udp + 6, 0);
  return ip_bytes + kUdpBytes;
}

void store_udp_checksum(ByteSpan ip_udp_headers, ByteView datagram) {
  const bool ipv4 = ip_udp_headers[0] >> 4 == 4;
  const ByteView addresses = ipv4 ? ip_udp_headers.subspan(12, 8) : ip_udp_headers.subspan(8, 32);
  const ByteSpan udp = ip_udp_headers.last(kUdpBytes);
  store_be16(udp.data() + 6, 0);
  // The pseudo-header of RFC 768 and RFC 8200: addresses, protocol and UDP length.
  std::uint32_t sum = sum_words(kUdpProtocol, addresses);
  sum += static_cast<std::uint32_t>(kUdpBytes + datagram.size());
  sum = sum_words(sum, udp);
  const std::uint16_t checksum = fold_sum(sum_words(sum, datagram));
  // 0 would mean that there is none; ones are the same number.
  store_be16(udp.data() + 6, checksum == 0 ? 0xffff : checksum);
}

void encode_grh(const Route& route, std::size_t datagram_bytes, std::uint8_t* out_40_bytes) {
  const std::size_t udp_bytes = kUdpBytes + datagram_bytes;
  if (!route.is_ipv4()) {
    encode_ipv6(route, udp_bytes, out_40_bytes);
    return;
  }
  constexpr std::size_t kUnused = kGrhBytes - kIpv4Bytes;
  std::memset(out_40_bytes, 0, kUnused);
  encode_ipv4(route, udp_bytes, out_40_bytes + kUnused);
}

bool parse_ip_udp(ByteView ip_packet, IpUdpView& view) {
  if (ip_packet.empty()) return false;
  switch (ip_packet[0] >> 4) {
    case 4:
      return parse_ipv4(ip_packet, view);
    case 6:
      return parse_ipv6(ip_packet, view);
    default:
      return false;
  }
}

}  // namespace softhca
