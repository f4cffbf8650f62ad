// A GID is an IP address: IPv6 as it is, IPv4 mapped into ::ffff:0:0/96 (IBTA Annex A17.4.1).
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

namespace softhca {

struct Gid {
  std::array<std::uint8_t, 16> raw{};

  friend bool operator==(const Gid&, const Gid&) = default;

  bool is_zero() const { return raw == std::array<std::uint8_t, 16>{}; }

  bool is_ipv4() const {
    static constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::memcmp(raw.data(), kMapped, sizeof kMapped) == 0;
  }

  // The four bytes of a mapped IPv4 address, in network order.
  const std::uint8_t* ipv4() const { return raw.data() + 12; }

  bool is_multicast() const { return is_ipv4() ? (raw[12] & 0xf0) == 0xe0 : raw[0] == 0xff; }

  static Gid from_ipv4(const std::uint8_t* address) {
    Gid gid;
    gid.raw[10] = gid.raw[11] = 0xff;
    std::memcpy(gid.raw.data() + 12, address, 4);
    return gid;
  }
};

}  // namespace softhca
