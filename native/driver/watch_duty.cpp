#include "driver/watch_duty.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "driver/clock.hpp"
#include "driver/lost_descriptors.hpp"

namespace softhca {
namespace {

// How long peers wait once a caller that was woken has stopped; it doubles from the one to the
// other while the caller comes back.
constexpr std::uint64_t kMinPatienceNs = 100'000;
constexpr std::uint64_t kMaxPatienceNs = 1'000'000;
// Where a caller left more to do than it waits for, the thread keeps the watch for so long.
constexpr std::uint64_t kKeptNs = 10'000'000;
// In milliseconds.
constexpr int kLongestSleepMs = kLongestSleepNs / 1'000'000;

}  // namespace

int WatchDuty::open() {
  handed_.reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!handed_.is_open()) return errno;
  ended_.reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!ended_.is_open()) return errno;
  timer_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  return timer_.is_open() ? 0 : errno;
}

void WatchDuty::lose() {
  const std::lock_guard lock(mutex_);
  handed_.release();
  ended_.release();
  timer_.release();
}

void WatchDuty::abandon() {
  handed_.reset();
  ended_.reset();
  timer_.reset();
}

WatchDuty::Part WatchDuty::begin(Caller& caller, std::uint64_t now_ns) {
  const std::lock_guard lock(mutex_);
  ++waiting_;
  if (is_closed_.load() || leader_ != nullptr) return Part::FOLLOWS;
  if (is_away()) {
    holder_.store(Holder::CALLER);
    leader_ = &caller;
    return Part::LEADS;
  }
  if (waiting_ > 1 || wants_.load() != nullptr || now_ns < not_before_ns_) return Part::FOLLOWS;
  wants_.store(&caller);
  return Part::ASKED;
}

int WatchDuty::handed_fd() {
  const std::lock_guard lock(mutex_);
  return handed_.get();
}

int WatchDuty::closed_fd() {
  const std::lock_guard lock(mutex_);
  return ended_.get();
}

bool WatchDuty::leads(Caller& caller) {
  const std::lock_guard lock(mutex_);
  eventfd_t count = 0;
  eventfd_read(handed_.get(), &count);
  return leader_ == &caller;
}

void WatchDuty::end(Caller& caller, bool more, std::uint64_t now_ns) {
  const std::lock_guard lock(mutex_);
  --waiting_;
  if (wants_.load() == &caller) wants_.store(nullptr);
  if (leader_ != &caller) return;
  leader_ = nullptr;
  holder_.store(Holder::AWAY);
  left_ns_ = now_ns;
  if (more || waiting_ > 0 || is_closed_.load()) {
    not_before_ns_ = left_ns_ + kKeptNs;
    take_back();
    wake_thread_after(1);
  } else if (!timer_runs_) {
    patience_ns_ = std::max(patience_ns_, kMinPatienceNs);
    timer_runs_ = true;
    wake_thread_after(patience_ns_);
  }
}

bool WatchDuty::is_waited_on() {
  const std::lock_guard lock(mutex_);
  return waiting_ > 0;
}

void WatchDuty::hand_over() {
  const std::lock_guard lock(mutex_);
  if (wants_.load() == nullptr || is_closed_.load()) return;
  leader_ = wants_.exchange(nullptr);
  holder_.store(Holder::CALLER);
  eventfd_write(handed_.get(), 1);
}

void WatchDuty::take_back() {
  holder_.store(Holder::THREAD);
  timer_runs_ = false;
  patience_ns_ = kMinPatienceNs;
}

int WatchDuty::timer_fd() {
  const std::lock_guard lock(mutex_);
  return timer_.get();
}

bool WatchDuty::rest() {
  pollfd waited{timer_fd(), POLLIN, 0};
  if (waited.fd < 0 ||
      (::poll(&waited, 1, kLongestSleepMs) > 0 && (waited.revents & POLLIN) == 0)) {
    look_again_later();
  }
  const std::lock_guard lock(mutex_);
  std::uint64_t times = 0;
  static_cast<void>(!read(timer_.get(), &times, sizeof times));
  if (is_threads()) return true;
  timer_runs_ = false;
  if (!is_away()) {
    patience_ns_ = std::min(2 * patience_ns_, kMaxPatienceNs);
    return false;
  }
  const std::uint64_t gone_ns = monotonic_ns() - left_ns_;
  if (gone_ns >= patience_ns_ || is_closed_.load()) {
    take_back();
    return true;
  }
  // It has come back meanwhile, and gone again.
  timer_runs_ = true;
  wake_thread_after(patience_ns_ - gone_ns);
  patience_ns_ = std::min(2 * patience_ns_, kMaxPatienceNs);
  return false;
}

void WatchDuty::wake_thread_after(std::uint64_t wait_ns) {
  itimerspec setting{};
  setting.it_value.tv_nsec = static_cast<long>(wait_ns);
  timerfd_settime(timer_.get(), 0, &setting, nullptr);
}

void WatchDuty::close() {
  const std::lock_guard lock(mutex_);
  is_closed_.store(true);
  if (leader_ == nullptr) take_back();
  wake_thread_after(1);
  eventfd_write(ended_.get(), 1);
}

}  // namespace softhca
