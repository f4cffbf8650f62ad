#include "driver/counter_clock.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "driver/clock.hpp"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace softhca {
namespace {

#if defined(__x86_64__)
std::uint64_t cycles() { return __rdtsc(); }

// The kernel has checked that it runs evenly, and alike on all processors; and programs may read
// it.
CounterClock::Read counter_of_machine() {
  std::string name;
  std::ifstream("/sys/devices/system/clocksource/clocksource0/current_clocksource") >> name;
  int allowed = 0;
  const bool is_allowed = prctl(PR_GET_TSC, &allowed) == 0 && allowed == PR_TSC_ENABLE;
  return name == "tsc" && is_allowed ? cycles : nullptr;
}
#else
CounterClock::Read counter_of_machine() { return nullptr; }
#endif

}  // namespace

CounterClock::CounterClock() : clock_ns_(monotonic_ns) {
  static const Read counter = counter_of_machine();
  counter_ = counter;
}

std::uint64_t CounterClock::late_ns() { return late_monotonic_ns(); }

std::uint64_t CounterClock::look() {
  const std::uint64_t before = counter_();
  const Moment now{.ns = clock_ns_(), .count = counter_()};
  const Moment last = last_;
  last_ = now;
  trusted_counts_ = 0;
  // While nobody knows how fast the counter is, only the clock tells how long the look took.
  const std::uint64_t took_ns =
      rate_ != 0 ? (now.count - before) * rate_ >> kRateBits : clock_ns_() - now.ns;
  if (took_ns > kInterruptedNs) {
    // Which moment the count belongs to is not known.
    last_.ns = 0;
    return now.ns;
  }
  const std::uint64_t ns = now.ns - last.ns;
  if (ns >= kTrustedNs && ns < kLongNs) {
    rate_ = (ns << kRateBits) / std::max<std::uint64_t>(now.count - last.count, 1);
  } else if (rate_ == 0 && ns < kTrustedNs) {
    last_ = last;  // Over so short a time it cannot be told how fast the counter is.
  }
  if (rate_ != 0) trusted_counts_ = (kTrustedNs << kRateBits) / rate_;
  return now.ns;
}

}  // namespace softhca
