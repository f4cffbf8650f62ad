// What IcrcMemory says of a packet must not depend on those that it has seen before.
#include <vector>

#include "tests/check.hpp"
#include "vocabulary/random.hpp"
#include "wire/crc32.hpp"
#include "wire/icrc_memory.hpp"
#include "wire/packet.hpp"

namespace softhca {
namespace {

using Bytes = std::vector<std::uint8_t>;

// Few values for each field, so that most packets differ from an earlier one in little.
Gid address(Random& random, bool ipv4) {
  Gid gid;
  gid.raw[0] = 0xfd;
  const auto last = static_cast<std::uint8_t>(random.below(2));
  const std::uint8_t four[] = {10, 0, 0, last};
  gid.raw[15] = last;
  return ipv4 ? Gid::from_ipv4(four) : gid;
}

Route route_of_few(Random& random) {
  const bool ipv4 = random.below(4) != 0;
  Route route;
  route.source = address(random, ipv4);
  route.destination = address(random, ipv4);
  route.udp_source_port = static_cast<std::uint16_t>(0xc000 + random.below(2));
  route.udp_destination_port = static_cast<std::uint16_t>(kRoceUdpPort + random.below(8) / 7);
  route.traffic_class = static_cast<std::uint8_t>(random.below(4));
  route.hop_limit = static_cast<std::uint8_t>(63 + random.below(2));
  route.flow_label = static_cast<std::uint32_t>(random.below(2));
  if (ipv4 && random.below(2) == 0) {
    route.identification = static_cast<std::uint16_t>(random.below(kMaxTrainPackets + 4));
  }
  return route;
}

// With its ICRC, or room for it.
Bytes datagram_of_few(Random& random) {
  constexpr std::size_t kPayloads[] = {0, 4, 16, 64, 60, 4096, 1024};
  Bytes bytes(kBthBytes + kPayloads[random.below(7)] + kIcrcBytes, 0x5a);
  for (std::size_t at = 0; at < kBthBytes; ++at) {
    bytes[at] = static_cast<std::uint8_t>(random.below(8) == 0 ? random.next() : 0x40);
  }
  bytes[bytes.size() - kIcrcBytes - 1] = static_cast<std::uint8_t>(random.next());
  return bytes;
}

TEST("icrc memory: sums what is summed without it") {
  Random random(testing::seed());
  IcrcMemory memory;
  for (int round = 0; round < 20'000; ++round) {
    const Route route = route_of_few(random);
    const Bytes bytes = datagram_of_few(random);
    const ByteView transport = ByteView(bytes).first(bytes.size() - kIcrcBytes);
    CHECK_EQ(memory.icrc_of(route, transport), icrc_of(route, transport));
  }
}

TEST("icrc memory: a payload that was summed on its way gets the same ICRC") {
  Random random(testing::seed());
  IcrcMemory memory;
  for (int round = 0; round < 20'000; ++round) {
    Route route = route_of_few(random);
    route.identification %= kMaxTrainPackets;
    Bytes bytes = datagram_of_few(random);
    const ByteSpan transport = ByteSpan(bytes).first(bytes.size() - kIcrcBytes);
    const std::size_t header_bytes = kBthBytes + random.below(transport.size() - kBthBytes + 1);
    const std::uint32_t before = memory.before_payload(route, transport, header_bytes);
    memory.append_summed(route, transport, crc32(before, transport.subspan(header_bytes)));
    Bytes expected = bytes;
    append_icrc(route, ByteSpan(expected).first(transport.size()));
    CHECK(bytes == expected);
  }
}

TEST("icrc memory: what is too short for a BTH is summed as well") {
  IcrcMemory memory;
  Random random(testing::seed());
  for (std::size_t bytes = 5; bytes < kBthBytes + 4; ++bytes) {
    const Bytes transport(bytes, 0x11);
    const Route route = route_of_few(random);
    CHECK_EQ(memory.icrc_of(route, transport), icrc_of(route, transport));
  }
}

TEST("icrc memory: good and damaged packets get the same verdict, at every level") {
  Random random(testing::seed());
  IcrcMemory memory;
  int good = 0;
  for (int round = 0; round < 20'000; ++round) {
    Route route = route_of_few(random);
    Bytes bytes = datagram_of_few(random);
    IcrcMemory().append(route, ByteSpan(bytes).first(bytes.size() - kIcrcBytes));
    if (random.below(2) == 0) {
      bytes[random.below(bytes.size())] ^= static_cast<std::uint8_t>(1 << random.below(8));
    }
    if (random.below(4) == 0) route = route_of_few(random);
    if (random.below(16) == 0) bytes.resize(random.below(kBthBytes + kIcrcBytes + 1));
    for (const IcrcLevel level : {IcrcLevel::STRICT, IcrcLevel::SOLVE, IcrcLevel::OFF}) {
      const IcrcVerdict expected = check_icrc(route, bytes, level);
      const IcrcVerdict verdict = memory.check(route, bytes, level);
      CHECK_EQ(verdict.good, expected.good);
      CHECK_EQ(verdict.solved, expected.solved);
      CHECK_EQ(verdict.identification, expected.identification);
      CHECK_EQ(verdict.dont_fragment, expected.dont_fragment);
      good += level == IcrcLevel::STRICT && verdict.good;
    }
  }
  CHECK(good > 5000);
  CHECK(good < 15'000);
}

}  // namespace
}  // namespace softhca
