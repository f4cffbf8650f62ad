// How seldom polls look at a network from which nothing comes, where adapters of this host are
// polled for by the same polls: a look costs as much as dozens of them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "driver/clock.hpp"

namespace softhca {

// Of many threads, none of which waits for another: what they tell each other may be late.
class QuietWire {
 public:
  // Somebody has looked; `arrived`: something had come.
  void looked(bool arrived) {
    const std::uint32_t looks = looks_.load(std::memory_order_relaxed);
    looks_.store(arrived ? 0 : std::min(looks + 1, kMostLooks), std::memory_order_relaxed);
  }
  // The last look brought something.
  bool is_busy() const { return looks_.load(std::memory_order_relaxed) == 0; }

  // Whether this poll may do without a look, where the last one was at `last_ns`. `crowded`:
  // looking lets others have the processor, and they want it.
  bool may_skip(std::uint64_t last_ns, bool crowded) {
    const std::uint32_t looks = looks_.load(std::memory_order_relaxed);
    if (looks < kQuietLooks) return false;
    const std::uint32_t polls = polls_.load(std::memory_order_relaxed) + 1;
    polls_.store(polls, std::memory_order_relaxed);
    if (polls % kPollsPerLook != 0) return true;
    return !crowded && monotonic_ns() - last_ns < (looks - kQuietLooks) * kStepNs;
  }

 private:
  // After this many looks in vain, only one in so many polls may look, and waits the longer for
  // each look that is in vain again.
  static constexpr std::uint32_t kQuietLooks = 64;
  static constexpr std::uint32_t kPollsPerLook = 32;
  static constexpr std::uint64_t kStepNs = 1'000;
  static constexpr std::uint32_t kMostLooks = kQuietLooks + 50;

  std::atomic<std::uint32_t> looks_{0};  // In vain, since something came.
  std::atomic<std::uint32_t> polls_{0};
};

}  // namespace softhca
