// Who sleeps on descriptors that somebody else in the process closes can be woken by nobody, and
// learns of it only when it goes to sleep on them again.
#pragma once

#include <poll.h>

#include <cstdint>
#include <ctime>

namespace softhca {

// So nobody sleeps longer.
inline constexpr std::uint64_t kLongestSleepNs = 1'000'000'000;

// Instead of a sleep on descriptors that are gone.
inline void look_again_later() {
  const timespec soon{0, 10'000'000};
  ppoll(nullptr, 0, &soon, nullptr);
}

}  // namespace softhca
