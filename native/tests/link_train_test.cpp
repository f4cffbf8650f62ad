// Trains: several datagrams that the kernel takes and gives as one message.

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <vector>

#include "adapter/icrc_trust.hpp"
#include "link/udp_link.hpp"
#include "link/udp_messages.hpp"
#include "tests/check.hpp"
#include "tests/udp_links.hpp"
#include "vocabulary/random.hpp"
#include "wire/icrc.hpp"

namespace softhca {
namespace {

using testing::open_link;
using testing::open_loopback_of_ipv6;

using Bytes = std::vector<std::uint8_t>;

constexpr std::uint8_t kSource[4] = {127, 9, 0, 1};
constexpr std::uint8_t kDestination[4] = {127, 9, 0, 2};

// Datagrams of these lengths, each with content of its own and a good ICRC.
struct Load {
  Route route;
  std::vector<Bytes> owned;
  std::vector<Datagram> datagrams;

  Load(const Route& on, const std::vector<std::size_t>& lengths) : route(on) {
    Random random(lengths.size());
    for (const std::size_t length : lengths) {
      Bytes bytes(length);
      for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random.next());
      append_icrc(route, ByteSpan(bytes.data(), length - 4));
      owned.push_back(std::move(bytes));
    }
    for (const Bytes& bytes : owned) datagrams.push_back({route, bytes});
  }

  // All but the ICRC, which covers the place in the train.
  bool is(std::size_t index, ByteView bytes) const {
    const Bytes& sent = owned[index];
    return bytes.size() == sent.size() && std::equal(bytes.begin(), bytes.end() - 4, sent.begin());
  }
};

Route route_between(const UdpLink& from, const UdpLink& to) {
  Route route;
  route.source = from.local().gid;
  route.destination = to.local().gid;
  route.udp_source_port = from.source_ports().front();
  return route;
}

// Sends, receives in order, and demands good ICRCs at the strictest level.
void exchange(UdpLink& from, UdpLink& to, const std::vector<std::size_t>& lengths) {
  const Load load(route_between(from, to), lengths);
  CHECK_EQ(from.send(load.datagrams), lengths.size());
  std::array<Datagram, 7> few;  // Fewer than a train: the rest waits.
  std::size_t arrived = 0;
  while (arrived < lengths.size()) {
    std::size_t count = to.receive(few);
    if (count == 0) {
      pollfd waited{to.arrival_fd(), POLLIN, 0};
      CHECK_EQ(poll(&waited, 1, 20'000), 1);
      continue;
    }
    for (std::size_t i = 0; i < count; ++i) {
      CHECK(load.is(arrived++, few[i].bytes));
      CHECK(check_icrc(few[i].route, few[i].bytes, IcrcLevel::STRICT).good);
      CHECK(few[i].route.source == load.route.source);
    }
  }
}

TEST("train: equal datagrams leave together and arrive one by one, with ICRCs that hold") {
  auto a = open_link(), b = open_link(), ipv6 = open_loopback_of_ipv6();
  exchange(*a, *b, std::vector<std::size_t>(100, 4116));
  if (ipv6 != nullptr) exchange(*ipv6, *ipv6, std::vector<std::size_t>(100, 4116));
  for (const UdpLink* link : {a.get(), ipv6.get()}) {
    if (link == nullptr) continue;
    CHECK_EQ(link->counters().sent, std::uint64_t{100});
    // One call takes 64: trains of 15, 15, 15, 15 and 4, then of 15, 15 and 6.
    CHECK_EQ(link->counters().trains_sent, std::uint64_t{8});
  }
}

TEST("train: what differs in length ends a train, and a shorter one closes it") {
  auto a = open_link(), b = open_link();
  exchange(*a, *b, {1044, 1028, 1028, 1028, 404});
  CHECK_EQ(a->counters().trains_sent, std::uint64_t{2});
  exchange(*a, *b, {32, 32, 20, 20, 64, 32, 16});
  CHECK_EQ(a->counters().trains_sent, std::uint64_t{4});
  std::vector<std::size_t> lengths;
  Random random(softhca::testing::seed());
  for (int i = 0; i < 500; ++i) lengths.push_back(20 + 4 * random.below(3));
  exchange(*a, *b, lengths);
}

TEST("train: routes are not mixed, and a train fits a UDP packet") {
  Route route;
  route.source = Gid::from_ipv4(kSource);
  route.destination = Gid::from_ipv4(kDestination);
  Load load(route, std::vector<std::size_t>(64, 4116));
  CHECK_EQ(train_length(load.datagrams), std::size_t{15});
  Load small(route, std::vector<std::size_t>(64, 32));
  CHECK_EQ(train_length(small.datagrams), std::size_t{64});
  small.datagrams[3].route.traffic_class = 8;
  CHECK_EQ(train_length(small.datagrams), std::size_t{3});
  small.datagrams[2].route.hop_limit = 1;
  CHECK_EQ(train_length(small.datagrams), std::size_t{2});
}

TEST("train: without trains the same arrives") {
  auto a = open_link("", false), b = open_link();
  exchange(*a, *b, std::vector<std::size_t>(50, 1044));
  CHECK_EQ(a->counters().trains_sent, std::uint64_t{0});
}

TEST("train: a peer that cannot be reached costs the others no trains") {
  auto a = open_link(), b = open_link();
  Route route = route_between(*a, *b);
  // Not from a loopback address: no packet leaves, in a train or alone.
  const std::uint8_t elsewhere[4] = {192, 0, 2, 1};
  route.destination = Gid::from_ipv4(elsewhere);
  const Load lost(route, std::vector<std::size_t>(30, 1044));
  constexpr std::uint64_t kTimes = 20;
  for (std::uint64_t i = 0; i < kTimes; ++i) CHECK_EQ(a->send(lost.datagrams), std::size_t{30});
  CHECK_EQ(a->counters().sent, std::uint64_t{0});
  CHECK_EQ(a->counters().send_refused, 30 * kTimes);
  exchange(*a, *b, std::vector<std::size_t>(30, 1044));
  CHECK_EQ(a->counters().trains_sent, std::uint64_t{1});
}

TEST("train: the ICRC's change is that of the identification, at any length") {
  Route route;
  route.source = Gid::from_ipv4(kSource);
  route.destination = Gid::from_ipv4(kDestination);
  Random random(softhca::testing::seed());
  for (int round = 0; round < 300; ++round) {
    Bytes bytes(12 + random.below(4200), 0x3c);
    Route renumbered = route;
    renumbered.identification = static_cast<std::uint16_t>(random.next());
    const IdentificationChange change(bytes.size() + 4);
    CHECK_EQ(icrc_of(route, bytes) ^ change(renumbered.identification), icrc_of(renumbered, bytes));
  }
}

TEST("train: one that was taken apart on its way is still believed of our own kind") {
  IcrcTrust trust(1);
  const Gid peer = Gid::from_ipv4(kSource);
  for (int i = 0; i < 3; ++i) CHECK(trust.accept(peer, {true, false, 0, true}));
  for (std::uint16_t place = 0; place < kMaxTrainPackets; ++place) {
    CHECK(trust.accept(peer, {true, true, place, true}));
    CHECK(!trust.accept(peer, {true, true, place, false}));
    CHECK(trust.accept(peer, {true, false, 0, true}));
  }
  CHECK(!trust.accept(peer, {true, true, kMaxTrainPackets, true}));
}

}  // namespace
}  // namespace softhca
