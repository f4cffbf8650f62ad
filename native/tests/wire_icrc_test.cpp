#include <algorithm>
#include <vector>

#include "tests/check.hpp"
#include "tests/wire_frames.hpp"
#include "vocabulary/random.hpp"
#include "wire/crc32.hpp"
#include "wire/icrc.hpp"
#include "wire/ip.hpp"
#include "wire/packet.hpp"

namespace softhca {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes random_bytes(Random& random, std::size_t count) {
  Bytes bytes(count);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random.next());
  return bytes;
}

Route random_route(Random& random, bool ipv4) {
  Route route;
  for (Gid* gid : {&route.source, &route.destination}) {
    const Bytes address = random_bytes(random, 16);
    if (ipv4) {
      *gid = Gid::from_ipv4(address.data());
    } else {
      std::ranges::copy(address, gid->raw.begin());
      gid->raw[0] = 0xfd;
    }
  }
  route.udp_source_port = static_cast<std::uint16_t>(random.next());
  route.traffic_class = static_cast<std::uint8_t>(random.next());
  route.hop_limit = static_cast<std::uint8_t>(random.next());
  route.flow_label = static_cast<std::uint32_t>(random.below(1 << 20));
  return route;
}

// 12 to 4144 bytes of transport, a multiple of four as on the wire.
Bytes random_transport(Random& random) {
  return random_bytes(random, 12 + 4 * random.below(random.below(2) == 0 ? 16 : 1034));
}

// The ICRC by its definition, over a copy of the whole packet as an ordinary observer would see it.
std::uint32_t icrc_by_definition(Bytes ip_packet) {
  const bool ipv4 = ip_packet[0] >> 4 == 4;
  std::vector<std::size_t> masked;
  if (ipv4) {
    masked = {1, 8, 10, 11, 26, 27, 28 + 4};
  } else {
    ip_packet[0] |= 0x0f;
    masked = {1, 2, 3, 7, 46, 47, 48 + 4};
  }
  for (const std::size_t at : masked) ip_packet[at] = 0xff;
  ip_packet.insert(ip_packet.begin(), 8, 0xff);
  return crc32_by_table(0, ip_packet);
}

Bytes ip_packet_of(const Route& route, const Bytes& transport, bool dont_fragment = true) {
  Bytes packet(48);
  packet.resize(encode_ip_udp(route, transport.size() + kIcrcBytes, packet));
  if (!dont_fragment) packet[6] &= 0xbf;
  packet.insert(packet.end(), transport.begin(), transport.end());
  return packet;
}

// The UDP payload of a sender whose IPv4 header has this identification and DF.
Bytes datagram_of(Route route, const Bytes& transport, std::uint16_t identification,
                  bool dont_fragment) {
  route.identification = identification;
  const std::uint32_t icrc = icrc_by_definition(ip_packet_of(route, transport, dont_fragment));
  Bytes datagram = transport;
  for (int shift = 0; shift < 32; shift += 8) {
    datagram.push_back(static_cast<std::uint8_t>(icrc >> shift));
  }
  return datagram;
}

TEST("icrc: equals the definition on random packets, IPv4 and IPv6") {
  Random random(testing::seed());
  for (int round = 0; round < 2000; ++round) {
    Route route = random_route(random, round % 2 == 0);
    route.identification = static_cast<std::uint16_t>(random.next());
    const Bytes transport = random_transport(random);
    CHECK_EQ(icrc_of(route, transport), icrc_by_definition(ip_packet_of(route, transport)));
  }
}

TEST("icrc: what is appended is checked good at every level") {
  Random random(testing::seed());
  for (int round = 0; round < 500; ++round) {
    const Route route = random_route(random, round % 2 == 0);
    Bytes datagram = random_transport(random);
    datagram.resize(datagram.size() + kIcrcBytes);
    append_icrc(route, ByteSpan(datagram).first(datagram.size() - kIcrcBytes));
    for (const IcrcLevel level : {IcrcLevel::STRICT, IcrcLevel::SOLVE, IcrcLevel::OFF}) {
      const IcrcVerdict verdict = check_icrc(route, datagram, level);
      CHECK(verdict.good);
      CHECK(!verdict.solved);
      CHECK_EQ(verdict.identification, 0);
      CHECK(verdict.dont_fragment);
    }
  }
}

TEST("icrc: Linux's packets are good in strict mode with their identification") {
  const ByteView frames[] = {testing::kIpv4SendFrame, testing::kIpv4AckFrame,
                             testing::kIpv6SendFrame};
  for (const ByteView frame : frames) {
    IpUdpView view;
    CHECK(parse_ip_udp(testing::ip_packet_of(frame), view));
    CHECK(check_icrc(view.route, view.datagram, IcrcLevel::STRICT).good);
    Packet packet;
    CHECK_EQ(decode_packet(view.datagram, packet), DecodeStatus::OK);
    // What switches and routers change does not matter.
    view.route.traffic_class ^= 0xff;
    view.route.hop_limit = 3;
    view.route.flow_label ^= 0xfffff;
    CHECK(check_icrc(view.route, view.datagram, IcrcLevel::STRICT).good);
  }
}

TEST("icrc: Linux's packets are solved without their identification") {
  IpUdpView view;
  CHECK(parse_ip_udp(testing::ip_packet_of(testing::kIpv4SendFrame), view));
  view.route.identification = 0;
  CHECK(!check_icrc(view.route, view.datagram, IcrcLevel::STRICT).good);
  const IcrcVerdict verdict = check_icrc(view.route, view.datagram, IcrcLevel::SOLVE);
  CHECK(verdict.good);
  CHECK(verdict.solved);
  CHECK_EQ(verdict.identification, 0x69b8);
  CHECK(verdict.dont_fragment);
}

TEST("icrc: any identification is solved for, with and without DF, from any assumption") {
  Random random(testing::seed());
  for (int round = 0; round < 4000; ++round) {
    Route route = random_route(random, true);
    const Bytes transport = random_transport(random);
    const auto identification = static_cast<std::uint16_t>(random.next());
    const bool dont_fragment = random.below(2) == 0;
    const Bytes datagram = datagram_of(route, transport, identification, dont_fragment);
    if (round % 3 == 0) route.identification = static_cast<std::uint16_t>(random.next());
    const IcrcVerdict verdict = check_icrc(route, datagram, IcrcLevel::SOLVE);
    CHECK(verdict.good);
    CHECK_EQ(verdict.solved, identification != route.identification || !dont_fragment);
    CHECK_EQ(verdict.identification, identification);
    CHECK_EQ(verdict.dont_fragment, dont_fragment);
  }
}

TEST("icrc: all 131072 answers at one length") {
  Random random(testing::seed());
  const Route route = random_route(random, true);
  const Bytes transport = random_bytes(random, 16);
  for (unsigned answer = 0; answer < 0x20000; ++answer) {
    const auto identification = static_cast<std::uint16_t>(answer);
    const bool dont_fragment = answer < 0x10000;
    const Bytes datagram = datagram_of(route, transport, identification, dont_fragment);
    const IcrcVerdict verdict = check_icrc(route, datagram, IcrcLevel::SOLVE);
    CHECK(verdict.good);
    CHECK_EQ(verdict.identification, identification);
    CHECK_EQ(verdict.dont_fragment, dont_fragment);
  }
}

TEST("icrc: the largest UDP payload is solved too, a larger one is never good") {
  Random random(testing::seed());
  const Route route = random_route(random, true);
  const Bytes transport = random_bytes(random, 65535 - 28 - 4);
  Bytes datagram = datagram_of(route, transport, 0x1234, false);
  CHECK_EQ(check_icrc(route, datagram, IcrcLevel::SOLVE).identification, 0x1234);
  datagram.push_back(0);
  CHECK(!check_icrc(route, datagram, IcrcLevel::OFF).good);
}

TEST("icrc: strict refuses every flipped bit and every short burst") {
  Random random(testing::seed());
  for (const bool ipv4 : {true, false}) {
    const Route route = random_route(random, ipv4);
    const Bytes good = datagram_of(route, random_bytes(random, 60), 0, true);
    for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
      Bytes bad = good;
      bad[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
      // The byte with FECN and BECN is not covered.
      CHECK_EQ(check_icrc(route, bad, IcrcLevel::STRICT).good, bit / 8 == 4);
    }
    for (int round = 0; round < 2000; ++round) {
      Bytes bad = good;
      const std::size_t at = 5 + random.below(good.size() - 9);
      const auto burst = static_cast<std::uint32_t>(random.next() | 1);
      for (std::size_t i = 0; i < 4; ++i) {
        bad[at + i] ^= static_cast<std::uint8_t>(burst >> (8 * i));
      }
      CHECK(!check_icrc(route, bad, IcrcLevel::STRICT).good);
    }
  }
}

TEST("icrc: solve refuses corruption, but for one in 2^15; in IPv6 it refuses all") {
  Random random(testing::seed());
  unsigned accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    const bool ipv4 = round % 2 == 0;
    const Route route = random_route(random, ipv4);
    const Bytes transport = random_bytes(random, 12 + 4 * random.below(64));
    Bytes datagram =
        datagram_of(route, transport, static_cast<std::uint16_t>(ipv4 ? random.next() : 0), true);
    for (std::size_t i = 0; i < 8; ++i) {
      datagram[5 + random.below(datagram.size() - 5)] ^= static_cast<std::uint8_t>(random.next());
    }
    const bool good = check_icrc(route, datagram, IcrcLevel::SOLVE).good;
    if (!ipv4) CHECK(!good);
    accepted += good ? 1 : 0;
  }
  // 10000 packets at 2^-15 make 0.3 on average; ten would be one chance in 10^12.
  CHECK(accepted < 10);
}

TEST("icrc: a wrong address, port or length is a wrong ICRC") {
  Random random(testing::seed());
  for (const bool ipv4 : {true, false}) {
    const Route route = random_route(random, ipv4);
    const Bytes good = datagram_of(route, random_bytes(random, 40), 0, true);
    Route other = route;
    other.source.raw[15] ^= 1;
    CHECK(!check_icrc(other, good, IcrcLevel::STRICT).good);
    other = route;
    other.destination.raw[13] ^= 0x80;
    CHECK(!check_icrc(other, good, IcrcLevel::STRICT).good);
    other = route;
    other.udp_source_port ^= 1;
    CHECK(!check_icrc(other, good, IcrcLevel::STRICT).good);
    Bytes longer = good;
    longer.insert(longer.end() - 4, 4, 0);
    CHECK(!check_icrc(route, longer, IcrcLevel::STRICT).good);
  }
}

TEST("icrc: fewer than sixteen bytes are never good") {
  Random random(testing::seed());
  const Route route = random_route(random, true);
  for (std::size_t bytes = 0; bytes < 16; ++bytes) {
    const Bytes datagram = random_bytes(random, bytes);
    for (const IcrcLevel level : {IcrcLevel::STRICT, IcrcLevel::SOLVE, IcrcLevel::OFF}) {
      CHECK(!check_icrc(route, datagram, level).good);
    }
  }
}

TEST("icrc: off looks at nothing") {
  Random random(testing::seed());
  CHECK(check_icrc(random_route(random, true), random_bytes(random, 16), IcrcLevel::OFF).good);
}

}  // namespace
}  // namespace softhca
