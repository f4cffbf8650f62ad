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
inline std::uint64_t realtime_ns() { return clock_ns(CLOCK_REALTIME); }

}  // namespace softhca
