// CLOCK_MONOTONIC for who asks with every message: between two looks at it, the processor's counter
// of cycles tells how much later it is, which costs less.
//
// The counter is believed where the kernel takes it for its own clock, for a millisecond at a time,
// and as fast as it was from look to look. Everywhere else each question is a look.
#pragma once

#include <cstdint>

#include "vocabulary/call_time.hpp"

namespace softhca {

// For one thread at a time.
class CounterClock final : public Clock {
 public:
  using Read = std::uint64_t (*)();

  // With the clock and the counter of this machine.
  CounterClock();
  // `counter`: null, if there is none that can be believed.
  CounterClock(Read clock_ns, Read counter) : clock_ns_(clock_ns), counter_(counter) {}

  std::uint64_t now_ns() override {
    if (counter_ == nullptr) return clock_ns_();
    const std::uint64_t since = counter_() - last_.count;
    return since < trusted_counts_ ? last_.ns + (since * rate_ >> kRateBits) : look();
  }
  std::uint64_t late_ns() override;

 private:
  struct Moment {
    std::uint64_t ns = 0;
    std::uint64_t count = 0;
  };
  static constexpr int kRateBits = 32;
  static constexpr std::uint64_t kTrustedNs = 1'000'000;
  // Looks that lie further apart say nothing about how fast the counter is now.
  static constexpr std::uint64_t kLongNs = 1'000'000'000;
  // A look that took so much longer was interrupted.
  static constexpr std::uint64_t kInterruptedNs = 200;

  std::uint64_t look();

  Read clock_ns_;
  Read counter_;
  Moment last_;
  std::uint64_t trusted_counts_ = 0;  // Behind `last_`.
  std::uint64_t rate_ = 0;            // Nanoseconds a count, in units of 2^-32.
};

}  // namespace softhca
