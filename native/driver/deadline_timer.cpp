#include "driver/deadline_timer.hpp"

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "adapter/adapter.hpp"

namespace softhca {

int DeadlineTimer::open() {
  timer_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  return timer_.is_open() ? 0 : errno;
}

void DeadlineTimer::clear() const {
  std::uint64_t times = 0;
  static_cast<void>(!read(timer_.get(), &times, sizeof times));
}

void DeadlineTimer::arm(std::uint64_t deadline_ns, std::uint64_t now_ns) {
  const bool gone_off = armed_ns_ <= now_ns;
  if (!gone_off && deadline_ns >= armed_ns_) return;
  // All zero disarms; setting the timer also makes the descriptor unreadable again.
  itimerspec setting{};
  if (deadline_ns != kNever) {
    const std::uint64_t at_ns = std::max<std::uint64_t>(deadline_ns, 1);
    setting.it_value.tv_sec = static_cast<time_t>(at_ns / 1'000'000'000u);
    setting.it_value.tv_nsec = static_cast<long>(at_ns % 1'000'000'000u);
  }
  timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &setting, nullptr);
  armed_ns_ = deadline_ns;
}

}  // namespace softhca
