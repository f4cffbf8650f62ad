// Trains: several datagrams that the kernel takes and gives as one message.

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <vector>

#include "adapter/icrc_trust.hpp"
#include "link/address.hpp"
#include "link/file_descriptor.hpp"
#include "link/train_peers.hpp"
#include "link/udp_link.hpp"
#include "link/udp_messages.hpp"
#include "tests/check.hpp"
#include "tests/udp_links.hpp"
#include "vocabulary/own_ports.hpp"
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

void wait_for_arrival(const UdpLink& link) {
  pollfd waited{link.arrival_fd(), POLLIN, 0};
  CHECK_EQ(poll(&waited, 1, 20'000), 1);
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
      wait_for_arrival(to);
      continue;
    }
    for (std::size_t i = 0; i < count; ++i) {
      CHECK(load.is(arrived++, few[i].bytes));
      CHECK(check_icrc(few[i].route, few[i].bytes, IcrcLevel::STRICT).good);
      CHECK(few[i].route.source == load.route.source);
    }
  }
}

// `from` hears of `to`, and sends it trains from then on.
void introduce(UdpLink& from, UdpLink& to) { exchange(to, from, {20}); }

// A program whose only socket is that of port 4791, at an address which nobody else has.
struct Program {
  Gid gid;
  FileDescriptor socket;

  Program() {
    Random random(softhca::testing::seed());
    int bound = -1;
    for (int tries = 0; bound != 0 && tries < 64; ++tries) {
      gid = random_loopback_address(random);
      socket.reset(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
      SocketAddress own = socket_address(gid, kRoceUdpPort, 0);
      bound = bind(socket.get(), own.get(), own.length);
    }
    CHECK_EQ(bound, 0);
  }

  void speak_to(UdpLink& link) const {
    SocketAddress to = socket_address(link.local().gid, kRoceUdpPort, 0);
    const std::uint8_t bytes[20] = {};
    CHECK_EQ(sendto(socket.get(), bytes, sizeof bytes, 0, to.get(), to.length), ssize_t{20});
    std::array<Datagram, 1> heard;
    wait_for_arrival(link);
    CHECK_EQ(link.receive(heard), std::size_t{1});
  }
};

TEST("train: equal datagrams leave together and arrive one by one, with ICRCs that hold") {
  auto a = open_link(), b = open_link(), ipv6 = open_loopback_of_ipv6();
  introduce(*a, *b);
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
  introduce(*a, *b);
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
  introduce(*a, *b);
  exchange(*a, *b, std::vector<std::size_t>(50, 1044));
  CHECK_EQ(a->counters().trains_sent, std::uint64_t{0});
}

TEST("train: who has not been heard gets single datagrams") {
  auto a = open_link(), b = open_link();
  exchange(*a, *b, std::vector<std::size_t>(50, 1044));
  CHECK_EQ(a->counters().trains_sent, std::uint64_t{0});
  introduce(*a, *b);
  exchange(*a, *b, std::vector<std::size_t>(50, 1044));
  CHECK_EQ(a->counters().trains_sent, std::uint64_t{1});
}

// It cannot know of any identification but 0.
TEST("train: a program with one socket finds the ICRCs of identification 0") {
  auto a = open_link();
  const Program peer;
  peer.speak_to(*a);
  Route route;
  route.source = a->local().gid;
  route.destination = peer.gid;
  route.udp_source_port = a->source_ports().front();
  const Load load(route, std::vector<std::size_t>(30, 1044));
  CHECK_EQ(a->send(load.datagrams), std::size_t{30});
  for (std::size_t i = 0; i < 30; ++i) {
    Bytes bytes(2048);
    CHECK_EQ(recv(peer.socket.get(), bytes.data(), bytes.size(), 0), ssize_t{1044});
    bytes.resize(1044);
    CHECK(bytes == load.owned[i]);
  }
}

TEST("train: what a peer's last datagram came from decides") {
  TrainPeers peers;
  Route route;
  route.source = Gid::from_ipv4(kSource);
  const auto hear = [&](std::uint16_t port) {
    route.udp_source_port = port;
    peers.heard(route);
    return peers.take(route.source);
  };
  CHECK(!peers.take(route.source));
  CHECK(hear(own_port(route.source, 0)));
  CHECK(hear(own_port(route.source, 15)));
  CHECK(!hear(kRoceUdpPort));
  CHECK(!hear(0xc000));
  CHECK(hear(own_port(route.source, 7)));
  CHECK(!peers.take(Gid::from_ipv4(kDestination)));
  // A kernel's ports are any; that it numbers what it sends shows later.
  CHECK(!hear(0xd123));
  peers.numbers_packets(route.source);
  CHECK(peers.take(route.source));
  CHECK(hear(0xd123));
  CHECK(!hear(0xd124));
}

TEST("train: one port in a thousand is taken for one of ours, and the first of all never") {
  Random random(softhca::testing::seed());
  int own = 0;
  for (int round = 0; round < 100; ++round) {
    std::uint8_t address[4];
    store_be32(address, static_cast<std::uint32_t>(random.next()));
    const Gid gid = Gid::from_ipv4(address);
    for (std::uint32_t port = 0; port < 0x10000; ++port) {
      own += is_own_port(gid, static_cast<std::uint16_t>(port)) ? 1 : 0;
    }
    CHECK(!is_own_port(gid, 0xc000));
    CHECK(!is_own_port(gid, kRoceUdpPort));
  }
  CHECK_EQ(own, 100 * 16);
}

TEST("train: a peer that cannot be reached costs the others no trains") {
  auto a = open_link(), b = open_link();
  introduce(*a, *b);
  Route route = route_between(*a, *b);
  // Not from a loopback address: no packet leaves, in a train or alone.
  const std::uint8_t elsewhere[4] = {192, 0, 2, 1};
  route.destination = Gid::from_ipv4(elsewhere);
  a->numbers_packets(route.destination);
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
