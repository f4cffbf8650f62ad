// What time it is for the call that is being served.
//
// Reading the clock takes as long as several steps of a short message, and most messages need no
// time at all. So a call may leave it to the first who asks; everybody else in the call hears
// the same. Where there is no clock, as in simulations, each call tells the time.
#pragma once

#include <algorithm>
#include <cstdint>

namespace softhca {

// Instead of a time: who wants to know it reads the clock.
inline constexpr std::uint64_t kAskClock = 0;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual std::uint64_t now_ns() = 0;
  // Now or later, by some milliseconds at most. Costs next to nothing.
  virtual std::uint64_t late_ns() = 0;
};

class CallTime {
 public:
  void use(Clock& clock) { clock_ = &clock; }
  // Another call begins, which asks for the time if it needs it.
  void begin() { unread_ = clock_ != nullptr; }
  // It never goes back.
  void tell(std::uint64_t at_ns) {
    if (at_ns == kAskClock) return;
    known_ns_ = std::max(known_ns_, at_ns);
    unread_ = false;
  }
  std::uint64_t now_ns() {
    if (unread_) tell(clock_->now_ns());
    return known_ns_;
  }
  // For deadlines that may come a little late.
  std::uint64_t late_ns() const {
    return unread_ ? std::max(known_ns_, clock_->late_ns()) : known_ns_;
  }

 private:
  Clock* clock_ = nullptr;
  std::uint64_t known_ns_ = 0;
  bool unread_ = false;
};

}  // namespace softhca
