#include <array>
#include <vector>

#include "link/loopback_link.hpp"
#include "tests/check.hpp"

namespace softhca {
namespace {

void send_number(LoopbackLink& link, std::uint16_t number) {
  const std::uint8_t bytes[2] = {static_cast<std::uint8_t>(number >> 8),
                                 static_cast<std::uint8_t>(number)};
  Datagram datagram;
  datagram.route.udp_source_port = number;
  datagram.bytes = bytes;
  CHECK_EQ(link.send(std::span(&datagram, 1)), std::size_t{1});
}

TEST("link loopback: datagrams come back in order, with their routes, as copies") {
  LoopbackLink link;
  std::array<Datagram, 7> arrived;
  std::uint16_t expected = 0;
  std::uint16_t sent = 0;
  // Batches of 10 in and of 7 out wrap the ring many times.
  for (int round = 0; round < 300; ++round) {
    for (int i = 0; i < 10 && sent - expected < 200; ++i) send_number(link, sent++);
    const std::size_t count = link.receive(arrived);
    for (std::size_t i = 0; i < count; ++i) {
      CHECK_EQ(arrived[i].route.udp_source_port, expected);
      CHECK_EQ(load_be16(arrived[i].bytes.data()), expected);
      ++expected;
    }
  }
  while (!link.empty()) expected = static_cast<std::uint16_t>(expected + link.receive(arrived));
  CHECK_EQ(expected, sent);
  CHECK_EQ(link.dropped(), std::uint64_t{0});
}

TEST("link loopback: what does not fit is dropped, counted, and disturbs nothing lent out") {
  LoopbackLink link;
  for (std::uint16_t i = 0; i < LoopbackLink::kCapacity; ++i) send_number(link, i);
  std::array<Datagram, 5> arrived;
  CHECK_EQ(link.receive(arrived), arrived.size());
  for (std::uint16_t i = 0; i < 9; ++i) send_number(link, 9999);
  CHECK_EQ(link.dropped(), std::uint64_t{9});
  for (std::uint16_t i = 0; i < arrived.size(); ++i) {
    CHECK_EQ(load_be16(arrived[i].bytes.data()), i);
  }
}

}  // namespace
}  // namespace softhca
