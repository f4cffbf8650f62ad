#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <set>
#include <vector>

#include "link/port_owner.hpp"
#include "link/udp_link.hpp"
#include "tests/check.hpp"
#include "tests/udp_links.hpp"
#include "vocabulary/random.hpp"
#include "wire/icrc.hpp"

namespace softhca {
namespace {

using testing::open_link;
using testing::open_loopback_of_ipv6;

using Bytes = std::vector<std::uint8_t>;

Route route_from(const UdpLink& from, const Gid& to) {
  Route route;
  route.source = from.local().gid;
  route.destination = to;
  route.udp_source_port = from.source_ports().front();
  return route;
}

Bytes datagram_on(const Route& route, std::uint32_t number, std::size_t payload_bytes) {
  Bytes bytes(12 + payload_bytes + 4, 0x5a);
  store_be32(bytes.data() + 8, number);
  append_icrc(route, ByteSpan(bytes.data(), bytes.size() - 4));
  return bytes;
}

// A group that no link of another process is in: named as an IPv4 address that is the link's alone.
Gid group_of(const UdpLink& link, std::uint8_t number = 0) {
  const std::uint8_t* own = link.local().gid.raw.data() + 12;
  const std::array<std::uint8_t, 4> group{239, own[1], own[2],
                                          static_cast<std::uint8_t>(own[3] ^ number)};
  return Gid::from_ipv4(group.data());
}

bool wait_readable(const Link& link, int timeout_ms = 20'000) {
  pollfd waited[] = {{link.ready_fd(), POLLIN, 0}, {link.arrival_fd(), POLLIN, 0}};
  return poll(waited, 2, timeout_ms) > 0;
}

// Receives until `count` datagrams are there; calls `check` with each while its bytes are valid.
template <class Check>
std::size_t receive_all(Link& link, std::size_t count, Check&& check) {
  std::array<Datagram, kLinkBatch> batch;
  std::size_t total = 0;
  while (total < count && wait_readable(link)) {
    const std::size_t arrived = link.receive(batch);
    for (std::size_t i = 0; i < arrived; ++i) check(batch[i]);
    total += arrived;
  }
  return total;
}

bool same_but_for_kernel(const Route& sent, const Route& received) {
  return sent.source == received.source && sent.destination == received.destination &&
         sent.udp_source_port == received.udp_source_port &&
         sent.traffic_class == received.traffic_class && sent.hop_limit == received.hop_limit;
}

TEST("link udp: our packets pass the strict ICRC check of a receiver without a raw socket") {
  auto a = open_link(), b = open_link();
  CHECK(a->local().gid != b->local().gid);
  // Annex A17.3.3: identification and DF are part of the ICRC. Each source port is a socket of its
  // own, and each must send identification 0.
  for (const std::uint16_t port : a->source_ports()) {
    Route route = route_from(*a, b->local().gid);
    route.udp_source_port = port;
    std::vector<Bytes> owned;
    std::vector<Datagram> datagrams;
    for (std::uint32_t i = 0; i < 100; ++i) owned.push_back(datagram_on(route, i, i * 41));
    for (const Bytes& bytes : owned) datagrams.push_back({route, bytes});
    CHECK_EQ(a->send(datagrams), datagrams.size());
    std::uint32_t number = 0;
    const std::size_t arrived = receive_all(*b, owned.size(), [&](const Datagram& datagram) {
      CHECK(same_but_for_kernel(route, datagram.route));
      CHECK_EQ(load_be32(datagram.bytes.data() + 8), number);
      CHECK(check_icrc(datagram.route, datagram.bytes, IcrcLevel::STRICT).good);
      ++number;
    });
    CHECK_EQ(arrived, owned.size());
  }
  CHECK_EQ(a->counters().sent, a->source_ports().size() * 100);
  CHECK_EQ(b->counters().received, a->source_ports().size() * 100);
}

TEST("link udp: traffic class and hop limit travel per packet") {
  auto a = open_link(), b = open_link();
  std::vector<Route> routes;
  std::vector<Bytes> owned;
  std::vector<Datagram> datagrams;
  for (const std::uint8_t traffic_class : {0, 1, 0x68, 0xff}) {
    for (const std::uint8_t hop_limit : {1, 64, 255}) {
      Route route = route_from(*a, b->local().gid);
      route.traffic_class = traffic_class;
      route.hop_limit = hop_limit;
      routes.push_back(route);
      owned.push_back(datagram_on(route, 0, 32));
    }
  }
  for (std::size_t i = 0; i < owned.size(); ++i) datagrams.push_back({routes[i], owned[i]});
  CHECK_EQ(a->send(datagrams), datagrams.size());
  std::size_t index = 0;
  receive_all(*b, owned.size(), [&](const Datagram& datagram) {
    CHECK(same_but_for_kernel(routes[index++], datagram.route));
    CHECK(check_icrc(datagram.route, datagram.bytes, IcrcLevel::STRICT).good);
  });
  CHECK_EQ(index, owned.size());
}

// A link to itself is told of a datagram's fields where somebody asks for them, and only there.
void check_fields_on_request(UdpLink& link, bool ipv6) {
  Route route = route_from(link, link.local().gid);
  route.traffic_class = 0x68;
  route.hop_limit = 9;
  route.flow_label = ipv6 ? 0xabcde : 0;
  const Bytes bytes = datagram_on(route, 1, 100);
  const Datagram datagram{route, bytes};
  const auto arrives_with = [&](const Route& expected) {
    CHECK_EQ(link.send(std::span(&datagram, 1)), std::size_t{1});
    const std::size_t arrived = receive_all(link, 1, [&](const Datagram& received) {
      CHECK(same_but_for_kernel(expected, received.route));
      CHECK_EQ(received.route.flow_label, expected.flow_label);
      CHECK(check_icrc(received.route, received.bytes, IcrcLevel::STRICT).good);
    });
    CHECK_EQ(arrived, std::size_t{1});
  };
  const Route bare = route_from(link, link.local().gid);
  arrives_with(route);
  link.tell_fields(false);
  arrives_with(bare);
  link.tell_fields(true);
  arrives_with(route);
}

TEST("link udp: traffic class and hop limit are told to who asks for them") {
  check_fields_on_request(*open_link(), false);
  if (const auto link = open_loopback_of_ipv6(); link != nullptr) {
    check_fields_on_request(*link, true);
  }
}

TEST("link udp: IPv6") {
  const auto link = open_loopback_of_ipv6();
  if (link == nullptr) return;
  Route route = route_from(*link, link->local().gid);
  route.traffic_class = 0x68;
  route.hop_limit = 9;
  route.flow_label = 0xabcde;
  const Bytes bytes = datagram_on(route, 1, 100);
  const Datagram datagram{route, bytes};
  CHECK_EQ(link->send(std::span(&datagram, 1)), std::size_t{1});
  const std::size_t arrived = receive_all(*link, 1, [&](const Datagram& received) {
    CHECK(same_but_for_kernel(route, received.route));
    CHECK_EQ(received.route.flow_label, route.flow_label);
    CHECK(check_icrc(received.route, received.bytes, IcrcLevel::STRICT).good);
  });
  CHECK_EQ(arrived, std::size_t{1});
}

TEST("link udp: ports are entropy of the range that RoCEv2 gives them") {
  auto a = open_link();
  const std::set<std::uint16_t> ports(a->source_ports().begin(), a->source_ports().end());
  CHECK_EQ(ports.size(), std::size_t{4});
  CHECK(*ports.begin() >= 0xc000);
  for (const std::uint16_t port : ports) CHECK(is_own_port(a->local().gid, port));
}

TEST("link udp: where its own ports are taken, others will do") {
  auto a = open_link();
  const Gid gid = a->local().gid;
  a.reset();
  std::vector<FileDescriptor> takers;
  for (unsigned place = 0; place < kOwnPorts; ++place) {
    takers.emplace_back(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    SocketAddress address = socket_address(gid, own_port(gid, place), 0);
    CHECK_EQ(bind(takers.back().get(), address.get(), address.length), 0);
  }
  a = open_link(format_gid(gid));
  CHECK_EQ(a->source_ports().size(), std::size_t{4});
  for (const std::uint16_t port : a->source_ports()) CHECK(!is_own_port(gid, port));
}

TEST("link udp: a taken address says who holds it") {
  auto a = open_link();
  UdpOptions options;
  options.address = format_gid(a->local().gid);
  std::unique_ptr<UdpLink> second;
  const LinkError error = UdpLink::open(options, second);
  CHECK_EQ(error.error, EADDRINUSE);
  CHECK(second == nullptr);
  CHECK(error.message.find("this very process holds " + options.address + ":4791") !=
        std::string::npos);
  CHECK(error.message.find("close it, or open another address") != std::string::npos);
  a.reset();
  CHECK(UdpLink::open(options, second).ok());
}

// On a port of its own: taking 4791 on every address would be in the way of other programs.
TEST("link udp: someone who takes the port on every address is named, too") {
  FileDescriptor taker(socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  socklen_t length = sizeof any;
  if (bind(taker.get(), reinterpret_cast<sockaddr*>(&any), sizeof any) != 0) {
    std::printf("skipped: this machine has no IPv6\n");
    return;
  }
  CHECK_EQ(getsockname(taker.get(), reinterpret_cast<sockaddr*>(&any), &length), 0);
  const std::uint16_t port = ntohs(any.sin6_port);
  Random random(port);
  const std::string owner = explain_port_owner(random_loopback_address(random), port);
  CHECK(owner.find("this very process holds [::]:" + std::to_string(port)) != std::string::npos);
  CHECK(owner.find("another network namespace") != std::string::npos);
  CHECK(owner.find("another address") == std::string::npos);
}

TEST("link udp: what the network refuses is lost, and stops nothing") {
  auto a = open_link(), b = open_link();
  const Route good = route_from(*a, b->local().gid);
  Route closed = good;
  closed.destination = Gid::from_ipv4(reinterpret_cast<const std::uint8_t*>("\x7f\x63\x62\x61"));
  Route foreign = good;
  foreign.source = b->local().gid;
  Route other_family = good;
  other_family.destination = Gid{};
  other_family.destination.raw[15] = 1;
  const Bytes bytes = datagram_on(good, 1, 64), too_long(70000, 0);
  const std::vector<Datagram> datagrams = {{closed, bytes}, {foreign, bytes}, {good, too_long},
                                           {good, bytes},   {closed, bytes},  {other_family, bytes},
                                           {good, bytes}};
  CHECK_EQ(a->send(datagrams), datagrams.size());
  CHECK(!a->blocked());
  CHECK_EQ(receive_all(*b, 2, [](const Datagram&) {}), std::size_t{2});
  CHECK_EQ(a->counters().send_refused, std::uint64_t{3});
}

TEST("link udp: a datagram longer than any conforming one is seen to be so") {
  auto a = open_link(), b = open_link();
  const Route route = route_from(*a, b->local().gid);
  const Bytes bytes = datagram_on(route, 1, 9000);
  const Datagram datagram{route, bytes};
  CHECK_EQ(a->send(std::span(&datagram, 1)), std::size_t{1});
  const std::size_t arrived = receive_all(
      *b, 1, [](const Datagram& received) { CHECK_EQ(received.bytes.size(), std::size_t{9016}); });
  CHECK_EQ(arrived, std::size_t{1});
}

TEST("link udp: a group's datagrams reach every member, the sender included, until it leaves") {
  auto a = open_link(), b = open_link();
  const Gid group = group_of(*a);
  CHECK(a->join_group(group).ok());
  CHECK(b->join_group(group).ok());
  CHECK(b->join_group(group).ok());
  const Route route = route_from(*a, group);
  const Bytes bytes = datagram_on(route, 1, 64);
  const Datagram datagram{route, bytes};
  const auto check = [&](const Datagram& received) {
    CHECK(same_but_for_kernel(route, received.route));
    CHECK(check_icrc(received.route, received.bytes, IcrcLevel::STRICT).good);
  };
  CHECK_EQ(a->send(std::span(&datagram, 1)), std::size_t{1});
  CHECK_EQ(receive_all(*a, 1, check), std::size_t{1});
  CHECK_EQ(receive_all(*b, 1, check), std::size_t{1});
  CHECK(b->leave_group(group).ok());
  CHECK_EQ(a->send(std::span(&datagram, 1)), std::size_t{1});
  CHECK_EQ(receive_all(*b, 1, check), std::size_t{1});
  CHECK(b->leave_group(group).ok());
  CHECK_EQ(b->leave_group(group).error, EINVAL);
  CHECK_EQ(a->join_group(a->local().gid).error, EINVAL);
}

// The child has a copy of the socket, to which the group's datagrams go as long as it lives.
TEST("link udp: a group that was left wakes nobody though the process has forked meanwhile") {
  auto a = open_link(), b = open_link();
  const Gid group = group_of(*a);
  CHECK(b->join_group(group).ok());
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  CHECK(b->leave_group(group).ok());
  const Route route = route_from(*a, group);
  const Bytes bytes = datagram_on(route, 1, 64);
  const Datagram datagram{route, bytes};
  CHECK_EQ(a->send(std::span(&datagram, 1)), std::size_t{1});
  pollfd ready{b->ready_fd(), POLLIN, 0};
  const int woken = poll(&ready, 1, 0);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  CHECK_EQ(woken, 0);
}

TEST("link udp: groups are heard, however much else comes") {
  UdpOptions single;
  single.trains = false;
  std::unique_ptr<UdpLink> a;
  CHECK(UdpLink::open(single, a).ok());
  const auto b = open_link();
  std::array<Gid, 3> groups;
  for (std::uint8_t i = 0; i < groups.size(); ++i) {
    groups[i] = group_of(*a, i);
  }
  const auto send = [&](const Gid& to, std::size_t count) {
    const Route route = route_from(*a, to);
    const Bytes bytes = datagram_on(route, 1, 64);
    const std::vector<Datagram> datagrams(count, Datagram{route, bytes});
    CHECK_EQ(a->send(datagrams), count);
  };
  std::array<Datagram, kLinkBatch> batch;
  send(b->local().gid, kLinkBatch);
  for (int full = 0; full < 3; full += b->receive(batch) == kLinkBatch ? 1 : 0) {
    send(b->local().gid, kLinkBatch);
  }
  for (const Gid& group : groups) {
    CHECK(b->join_group(group).ok());
    send(group, kLinkBatch);
  }
  std::array<std::size_t, groups.size()> heard{};
  for (int receives = 0; receives < 40; ++receives) {
    send(b->local().gid, kLinkBatch);
    const std::size_t count = b->receive(batch);
    for (std::size_t i = 0; i < count; ++i) {
      const auto group = std::ranges::find(groups, batch[i].route.destination);
      if (group != groups.end()) ++heard[static_cast<std::size_t>(group - groups.begin())];
    }
  }
  for (const std::size_t count : heard) CHECK_EQ(count, kLinkBatch);
}

// Addresses of this machine that others can reach: one of either family, if there is one.
std::vector<std::string> addresses_of_networks() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  std::vector<std::string> found;
  constexpr unsigned kWanted = IFF_UP | IFF_MULTICAST;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family) continue;
      if ((one->ifa_flags & (kWanted | IFF_LOOPBACK)) != kWanted) continue;
      std::array<char, NI_MAXHOST> text;
      const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      if (getnameinfo(one->ifa_addr, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) !=
          0) {
        continue;
      }
      found.emplace_back(text.data());
      break;
    }
  }
  freeifaddrs(list);
  return found;
}

TEST("link udp: a group is heard on the link's own interface, and on no other") {
  for (const std::string& address : addresses_of_networks()) {
    const auto there = open_link(address);
    const bool ipv4 = there->local().gid.is_ipv4();
    const auto here = ipv4 ? open_link() : open_loopback_of_ipv6();
    if (here == nullptr) continue;
    Gid group = group_of(*here);
    if (!ipv4) CHECK(parse_gid("ff12::1:3:1", group));
    CHECK(here->join_group(group).ok());
    CHECK(there->join_group(group).ok());
    const Route route = route_from(*there, group);
    const Bytes bytes = datagram_on(route, 1, 64);
    const Datagram datagram{route, bytes};
    CHECK_EQ(there->send(std::span(&datagram, 1)), std::size_t{1});
    CHECK_EQ(receive_all(*there, 1, [](const Datagram&) {}), std::size_t{1});
    std::array<Datagram, kLinkBatch> batch;
    CHECK_EQ(here->receive(batch), std::size_t{0});
  }
}

}  // namespace
}  // namespace softhca
