// Two opened devices that share memory instead of using the network.
#pragma once

#include "tests/driver_hosts.hpp"

namespace softhca::testing {

struct NeighbourPair {
  DriverHost a;
  DriverHost b;
  std::uint32_t qp_a = 0;
  std::uint32_t qp_b = 0;

  NeighbourPair() {
    const auto [first, second] = connect_another();
    qp_a = first;
    qp_b = second;
  }

  std::pair<std::uint32_t, std::uint32_t> connect_another(std::uint8_t timeout = kAckTimeout) {
    const std::uint32_t first = a.create_qp();
    const std::uint32_t second = b.create_qp();
    a.driver().meet(b.gid(), kPatienceMs);
    a.connect(first, b.gid(), second, timeout);
    b.driver().meet(a.gid(), kPatienceMs);
    b.connect(second, a.gid(), first, timeout);
    return {first, second};
  }

  // Nothing has taken the network.
  void check_no_datagrams() {
    CHECK_EQ(a.driver().counters().udp.sent, 0u);
    CHECK_EQ(b.driver().counters().udp.sent, 0u);
  }
};

}  // namespace softhca::testing
