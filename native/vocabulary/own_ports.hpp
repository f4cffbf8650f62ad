// By the port that a packet came from, adapters of our kind know each other. Of the ports that
// carry entropy (IBTA Annex A17.4.5.2) each address has sixteen. Another that somebody chose is
// among them once in a thousand, the first of all never.
#pragma once

#include <cstdint>

#include "vocabulary/bytes.hpp"
#include "vocabulary/gid.hpp"

namespace softhca {

inline constexpr std::uint16_t kFirstSourcePort = 0xc000;
inline constexpr unsigned kOwnPorts = 16;

constexpr std::uint16_t own_port(std::uint32_t address, unsigned place) {
  const std::uint32_t mixed = (address ^ place) * 0x9e3779b1u;
  const std::uint32_t low = 1 + (mixed >> 8) % 1023;
  return static_cast<std::uint16_t>(kFirstSourcePort | place << 10 | low);
}

// The last four bytes, which are all of an IPv4 address.
inline std::uint16_t own_port(const Gid& gid, unsigned place) {
  return own_port(load_be32(gid.raw.data() + 12), place);
}

inline bool is_own_port(const Gid& gid, std::uint16_t port) {
  return port > kFirstSourcePort && port == own_port(gid, port >> 10 & (kOwnPorts - 1));
}

}  // namespace softhca
