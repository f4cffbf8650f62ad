// Links over UDP for tests, of which others may run on this machine at the same time.
#pragma once

#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "driver/clock.hpp"
#include "link/udp_link.hpp"
#include "tests/check.hpp"

namespace softhca::testing {

// Waits while another process has the address: there is but one ::1.
inline LinkError open_when_free(const UdpOptions& options, std::unique_ptr<UdpLink>& link) {
  constexpr std::uint64_t kLongestNs = 60'000'000'000;
  const std::uint64_t until_ns = monotonic_ns() + kLongestNs;
  LinkError error = UdpLink::open(options, link);
  while (error.error == EADDRINUSE && monotonic_ns() < until_ns) {
    std::this_thread::yield();
    error = UdpLink::open(options, link);
  }
  return error;
}

inline std::unique_ptr<UdpLink> open_link(const std::string& address = "", bool trains = true) {
  UdpOptions options;
  options.address = address;
  options.trains = trains;
  std::unique_ptr<UdpLink> link;
  const LinkError error = open_when_free(options, link);
  if (!error.ok()) std::printf("%s\n", error.message.c_str());
  CHECK(error.ok());
  return link;
}

// Null where the machine has no IPv6.
inline std::unique_ptr<UdpLink> open_loopback_of_ipv6() {
  UdpOptions options;
  options.address = "::1";
  std::unique_ptr<UdpLink> link;
  const LinkError error = open_when_free(options, link);
  if (error.error == EADDRNOTAVAIL || error.error == EAFNOSUPPORT) {
    std::printf("skipped: this machine has no ::1\n");
    return nullptr;
  }
  CHECK(error.ok());
  return link;
}

}  // namespace softhca::testing
