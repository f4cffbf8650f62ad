// When a caller that polls in vain lets others have the processor: the peer it waits for may be one
// of them, where there are more programs than processors.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "driver/clock.hpp"

namespace softhca {

// Of many threads, none of which waits for another: what they tell each other may be late.
class YieldHabit {
 public:
  enum class Yield : std::uint8_t { NOT_DONE, NOBODY_RAN, SOMEBODY_RAN };

  // A poll has found something.
  void found() { polling_since_ns_.store(0, std::memory_order_relaxed); }
  // The last poll found nothing either.
  bool is_waiting() const { return polling_since_ns_.load(std::memory_order_relaxed) != 0; }
  // A poll has found nothing. Yields if that has gone on for long.
  Yield in_vain(std::uint64_t now_ns) {
    const std::uint64_t since_ns = polling_since_ns_.load(std::memory_order_relaxed);
    if (since_ns == 0) polling_since_ns_.store(now_ns, std::memory_order_relaxed);
    if (since_ns == 0 || now_ns - since_ns < after_ns_.load(std::memory_order_relaxed)) {
      return Yield::NOT_DONE;
    }
    sched_yield();
    return monotonic_ns() - now_ns > kSomebodyRanNs ? Yield::SOMEBODY_RAN : Yield::NOBODY_RAN;
  }
  // Where letting others have the processor brought the completion, the peer shares it with us, and
  // waiting for it any longer only keeps it from answering. Where nobody wants it, it does not.
  void learn(Yield yielded, bool found) {
    if (yielded == Yield::NOT_DONE) return;
    const std::uint64_t before_ns = after_ns_.load(std::memory_order_relaxed);
    const std::uint64_t now_ns = yielded == Yield::NOBODY_RAN ? std::min(2 * before_ns, kAfterNs)
                                 : found                      ? kToPeerNs
                                                              : kAfterNs;
    after_ns_.store(now_ns, std::memory_order_relaxed);
  }
  // The peer is taken to share the processor.
  bool is_crowded() const { return after_ns_.load(std::memory_order_relaxed) < kAfterNs; }

 private:
  // A caller's fruitless polls cost nobody else the processor after this time.
  static constexpr std::uint64_t kAfterNs = 50'000;
  static constexpr std::uint64_t kToPeerNs = 1'000;
  // A yield that took so long let somebody else run.
  static constexpr std::uint64_t kSomebodyRanNs = 4'000;

  std::atomic<std::uint64_t> after_ns_{kAfterNs};
  std::atomic<std::uint64_t> polling_since_ns_{0};  // First poll of a row in vain; 0: none.
};

}  // namespace softhca
