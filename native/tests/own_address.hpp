// Addresses of this process: no other process of this machine has them, be it another run of the
// same tests with the same seed.
#pragma once

#include <unistd.h>

#include <cstdint>

#include "vocabulary/gid.hpp"

namespace softhca::testing {

// A unique local address, or one of another network that `first` and `second` begin.
inline Gid own_address(std::uint8_t host, std::uint8_t first = 0xfd, std::uint8_t second = 0x77) {
  Gid gid;
  gid.raw[0] = first;
  gid.raw[1] = second;
  const auto process = static_cast<std::uint32_t>(getpid());
  for (std::size_t at = 0; at < 4; ++at) {
    gid.raw[8 + at] = static_cast<std::uint8_t>(process >> (8 * at));
  }
  gid.raw[15] = host;
  return gid;
}

}  // namespace softhca::testing
