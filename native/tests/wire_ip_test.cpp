#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "tests/check.hpp"
#include "tests/wire_frames.hpp"
#include "vocabulary/random.hpp"
#include "wire/ip.hpp"

namespace softhca {
namespace {

using Bytes = std::vector<std::uint8_t>;

Route ipv4_route() {
  const std::uint8_t source[4] = {10, 9, 0, 1};
  const std::uint8_t destination[4] = {10, 9, 0, 2};
  Route route;
  route.source = Gid::from_ipv4(source);
  route.destination = Gid::from_ipv4(destination);
  route.udp_source_port = 0xc156;
  route.identification = 0x69b8;
  return route;
}

Route ipv6_route() {
  Route route;
  route.source.raw = {0xfd, 0x09, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  route.destination.raw = {0xfd, 0x09, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};
  route.udp_source_port = 0xcfc0;
  return route;
}

Bytes packet_of(const Route& route, std::size_t datagram_bytes) {
  Bytes packet(48);
  packet.resize(encode_ip_udp(route, datagram_bytes, packet));
  packet.resize(packet.size() + datagram_bytes);
  return packet;
}

bool parses(const Bytes& packet) {
  IpUdpView view;
  return parse_ip_udp(packet, view);
}

TEST("ip: headers equal those that Linux wrote") {
  std::array<std::uint8_t, 48> out;
  CHECK_EQ(encode_ip_udp(ipv4_route(), 20, out), 28);
  CHECK(std::ranges::equal(ByteView(out).first(28),
                           testing::ip_packet_of(testing::kIpv4SendFrame).first(28)));
  CHECK_EQ(encode_ip_udp(ipv6_route(), 80, out), 48);
  CHECK(std::ranges::equal(out, testing::ip_packet_of(testing::kIpv6SendFrame).first(48)));
}

TEST("ip: what was encoded is parsed, IPv4 and IPv6") {
  Random random(testing::seed());
  for (int round = 0; round < 1000; ++round) {
    Route route = round % 2 == 0 ? ipv4_route() : ipv6_route();
    route.source.raw[14] = static_cast<std::uint8_t>(random.next());
    route.traffic_class = static_cast<std::uint8_t>(random.next());
    route.hop_limit = static_cast<std::uint8_t>(random.next());
    route.udp_source_port = static_cast<std::uint16_t>(random.next());
    route.udp_destination_port = static_cast<std::uint16_t>(random.next());
    route.identification = static_cast<std::uint16_t>(random.next());
    route.flow_label = static_cast<std::uint32_t>(random.below(1 << 20));
    const std::size_t bytes = random.below(4200);
    const Bytes packet = packet_of(route, bytes);
    IpUdpView view;
    CHECK(parse_ip_udp(packet, view));
    CHECK(view.route.source == route.source);
    CHECK(view.route.destination == route.destination);
    CHECK_EQ(view.route.udp_source_port, route.udp_source_port);
    CHECK_EQ(view.route.udp_destination_port, route.udp_destination_port);
    CHECK_EQ(view.route.traffic_class, route.traffic_class);
    CHECK_EQ(view.route.hop_limit, route.hop_limit);
    CHECK_EQ(view.route.identification, route.is_ipv4() ? route.identification : 0);
    CHECK_EQ(view.route.flow_label, route.is_ipv4() ? 0 : route.flow_label);
    CHECK_EQ(view.datagram.size(), bytes);
    CHECK(view.datagram.data() == packet.data() + packet.size() - bytes);
    CHECK(view.dont_fragment);
    CHECK(view.header_checksum_good);
  }
}

// Expected values: scapy's, for the same frames.
TEST("ip: the UDP checksum, for captures") {
  std::array<std::uint8_t, 48> out;
  const ByteView ipv6_datagram = testing::ip_packet_of(testing::kIpv6SendFrame).subspan(48);
  encode_ip_udp(ipv6_route(), ipv6_datagram.size(), out);
  store_udp_checksum(out, ipv6_datagram);
  CHECK_EQ(load_be16(out.data() + 46), 0x2618);

  const ByteView ipv4_datagram = testing::ip_packet_of(testing::kIpv4SendFrame).subspan(28);
  encode_ip_udp(ipv4_route(), ipv4_datagram.size(), out);
  store_udp_checksum(ByteSpan(out).first(28), ipv4_datagram);
  CHECK_EQ(load_be16(out.data() + 26), 0x2010);

  // What would be 0, which means none, is written as ones.
  Bytes balanced(4, 0);
  encode_ip_udp(ipv6_route(), balanced.size(), out);
  store_udp_checksum(out, balanced);
  store_be16(balanced.data(), load_be16(out.data() + 46));
  store_udp_checksum(out, balanced);
  CHECK_EQ(load_be16(out.data() + 46), 0xffff);
}

TEST("ip: the GRH of a UD receiver (Annex A17.4.5.1)") {
  std::array<std::uint8_t, 40> grh;
  grh.fill(0xee);
  encode_grh(ipv4_route(), 20, grh.data());
  CHECK(std::ranges::all_of(ByteView(grh).first(20), [](std::uint8_t byte) { return byte == 0; }));
  CHECK(std::ranges::equal(ByteView(grh).subspan(20),
                           testing::ip_packet_of(testing::kIpv4SendFrame).first(20)));
  encode_grh(ipv6_route(), 80, grh.data());
  CHECK(std::ranges::equal(grh, testing::ip_packet_of(testing::kIpv6SendFrame).first(40)));
}

TEST("ip: a packet cut short at any byte is refused") {
  for (const Route& route : {ipv4_route(), ipv6_route()}) {
    const Bytes packet = packet_of(route, 20);
    for (std::size_t bytes = 0; bytes < packet.size(); ++bytes) {
      const auto cut = std::make_unique<std::uint8_t[]>(bytes);
      std::copy_n(packet.begin(), bytes, cut.get());
      IpUdpView view;
      CHECK(!parse_ip_udp(ByteView(cut.get(), bytes), view));
    }
  }
}

TEST("ip: Ethernet's padding is left out") {
  for (const Route& route : {ipv4_route(), ipv6_route()}) {
    Bytes packet = packet_of(route, 16);
    packet.resize(packet.size() + 6);
    IpUdpView view;
    CHECK(parse_ip_udp(packet, view));
    CHECK_EQ(view.datagram.size(), 16);
  }
}

TEST("ip: fragments, other protocols and other versions are refused") {
  Bytes packet = packet_of(ipv4_route(), 16);
  packet[6] |= 0x20;  // More fragments.
  CHECK(!parses(packet));
  packet = packet_of(ipv4_route(), 16);
  packet[7] = 1;  // Fragment offset.
  CHECK(!parses(packet));
  packet = packet_of(ipv4_route(), 16);
  packet[9] = 6;  // TCP.
  CHECK(!parses(packet));
  packet = packet_of(ipv4_route(), 16);
  packet[0] = 0x44;  // Four words of header are not enough.
  CHECK(!parses(packet));
  packet[0] = 0x55;
  CHECK(!parses(packet));
  packet = packet_of(ipv6_route(), 16);
  packet[6] = 44;  // A fragment header.
  CHECK(!parses(packet));
  CHECK(!parses({}));
}

TEST("ip: a UDP length that does not fit is refused, a shorter one is taken") {
  Bytes packet = packet_of(ipv4_route(), 16);
  packet[25] = 8 + 17;
  CHECK(!parses(packet));
  packet[25] = 7;
  CHECK(!parses(packet));
  packet[25] = 8 + 12;
  IpUdpView view;
  CHECK(parse_ip_udp(packet, view));
  CHECK_EQ(view.datagram.size(), 12);
}

TEST("ip: a missing DF and a wrong header checksum are told, options are skipped") {
  Bytes packet = packet_of(ipv4_route(), 16);
  packet[6] = 0;
  IpUdpView view;
  CHECK(parse_ip_udp(packet, view));
  CHECK(!view.dont_fragment);
  CHECK(!view.header_checksum_good);

  packet = packet_of(ipv4_route(), 16);
  packet.insert(packet.begin() + 20, 4, 1);  // Four times "no operation".
  packet[0] = 0x46;
  packet[3] = static_cast<std::uint8_t>(packet[3] + 4);
  CHECK(parse_ip_udp(packet, view));
  CHECK_EQ(view.datagram.size(), 16);
  CHECK_EQ(view.route.udp_source_port, 0xc156);
}

TEST("ip: random bytes are parsed to something inside them or refused") {
  Random random(testing::seed());
  for (int round = 0; round < 100'000; ++round) {
    const std::size_t bytes = random.below(80);
    const auto packet = std::make_unique<std::uint8_t[]>(bytes);
    for (std::size_t i = 0; i < bytes; ++i) packet[i] = static_cast<std::uint8_t>(random.next());
    if (bytes >= 10 && round % 2 == 0) {
      // Likely headers, so that the deeper checks are reached.
      const Bytes likely = packet_of(round % 4 == 0 ? ipv4_route() : ipv6_route(), bytes);
      std::copy_n(likely.begin(), std::min<std::size_t>(bytes, 10), packet.get());
      packet[random.below(10)] = static_cast<std::uint8_t>(random.next());
    }
    IpUdpView view;
    if (!parse_ip_udp(ByteView(packet.get(), bytes), view)) continue;
    CHECK(view.datagram.data() >= packet.get());
    CHECK(view.datagram.data() + view.datagram.size() <= packet.get() + bytes);
  }
}

}  // namespace
}  // namespace softhca
