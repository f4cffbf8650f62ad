// A GID is an IP address: IPv6 as it is, IPv4 mapped into ::ffff:0:0/96 (IBTA Annex A17.4.1).
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

namespace softhca {

struct Gid {
  std::array<std::uint8_t, 16> raw{};

  // Two comparisons, and not a call: every packet's addresses are compared.
  friend bool operator==(const Gid& one, const Gid& other) {
    return one.half(0) == other.half(0) && one.half(8) == other.half(8);
  }

  bool is_zero() const { return raw == std::array<std::uint8_t, 16>{}; }

  // Of no host, in either version: :: or 0.0.0.0.
  bool is_unspecified() const {
    return is_zero() || (is_ipv4() && raw[12] == 0 && raw[13] == 0 && raw[14] == 0 && raw[15] == 0);
  }

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

 private:
  std::uint64_t half(std::size_t at) const {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, raw.data() + at, sizeof bytes);
    return bytes;
  }
};

}  // namespace softhca
