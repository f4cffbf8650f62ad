// The adapter's time in the real world.
#pragma once

#include <time.h>

#include <cstdint>

namespace softhca {

inline std::uint64_t clock_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

inline std::uint64_t monotonic_ns() { return clock_ns(CLOCK_MONOTONIC); }
// Now or later, by some milliseconds: the time of the last tick and the length of one.
inline std::uint64_t late_monotonic_ns() {
  static const std::uint64_t tick_ns = [] {
    timespec tick{};
    clock_getres(CLOCK_MONOTONIC_COARSE, &tick);
    return static_cast<std::uint64_t>(tick.tv_nsec);
  }();
  return clock_ns(CLOCK_MONOTONIC_COARSE) + tick_ns;
}
inline std::uint64_t realtime_ns() { return clock_ns(CLOCK_REALTIME); }

}  // namespace softhca
