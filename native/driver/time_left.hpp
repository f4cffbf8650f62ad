// How long until a moment, as system calls that wait want it.
#pragma once

#include <ctime>

#include "adapter/adapter.hpp"
#include "driver/clock.hpp"

namespace softhca {

// What is left until then; null if it is never.
inline const timespec* time_until(std::uint64_t deadline_ns, timespec& left) {
  if (deadline_ns == kNever) return nullptr;
  const std::uint64_t now_ns = monotonic_ns();
  const std::uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
  left.tv_sec = static_cast<time_t>(left_ns / 1'000'000'000u);
  left.tv_nsec = static_cast<long>(left_ns % 1'000'000'000u);
  return &left;
}

}  // namespace softhca
