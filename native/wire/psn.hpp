// Packet sequence numbers: 24 bits, compared in a window of 2^23 (IBTA Vol 1, 9.7.2).
#pragma once

#include <cstdint>

namespace softhca {

inline constexpr std::uint32_t kPsnMask = 0xffffff;

inline constexpr std::uint32_t psn_add(std::uint32_t psn, std::uint32_t count) {
  return (psn + count) & kPsnMask;
}

// Signed distance from `from` to `to`: positive when `to` is ahead.
inline constexpr std::int32_t psn_distance(std::uint32_t from, std::uint32_t to) {
  return static_cast<std::int32_t>((to - from) << 8) >> 8;
}

}  // namespace softhca
