// Callers who wait for an event: they do the thread's work meanwhile.
#include <poll.h>

#include <algorithm>

#include "driver/driver.hpp"
#include "driver/lost_descriptors.hpp"
#include "driver/time_left.hpp"

namespace softhca {

Driver::Waited Driver::wait_for(CompletionChannel& channel, std::uint64_t deadline_ns) {
  Waiter waiter{channel, deadline_ns};
  WatchDuty::Caller caller;
  WatchDuty::Part part = duty_.begin(caller, monotonic_ns());
  if (part == WatchDuty::Part::LEADS) take_watch();
  if (part == WatchDuty::Part::ASKED) kick();
  std::optional<Waited> waited;
  while (!(waited = why_not_wait(waiter))) {
    if (part == WatchDuty::Part::LEADS) {
      watch(&waiter);
      continue;
    }
    wait_while_others_watch(waiter, part == WatchDuty::Part::ASKED ? duty_.handed_fd() : -1);
    if (part == WatchDuty::Part::ASKED && duty_.leads(caller)) {
      part = WatchDuty::Part::LEADS;
      take_watch();
    }
  }
  leave_watch(caller, waiter.more);
  return *waited;
}

std::optional<Driver::Waited> Driver::why_not_wait(const Waiter& waiter) const {
  if (waiter.channel.has_event()) return Waited::EVENT;
  if (duty_.is_closed()) return Waited::CLOSED;
  if (waiter.interrupted) return Waited::INTERRUPTED;
  if (waiter.deadline_ns == kNever || monotonic_ns() < waiter.deadline_ns) return std::nullopt;
  return Waited::TIMEOUT;
}

// Whoever has the watch does not poll.
void Driver::take_watch() {
  last_poll_ns_.store(0, std::memory_order_relaxed);
  fruitful_polls_.store(0, std::memory_order_relaxed);
  thread_state_.store(ThreadState::RUNNING);
}

// What comes now waits for the caller to be back, as while it polls. Without the watch it may have
// been handed over all the same, and nothing of this changes what the thread does.
void Driver::leave_watch(WatchDuty::Caller& caller, bool more) {
  const std::uint64_t now_ns = monotonic_ns();
  if (more) work_left_.store(true);
  if (duty_.leads(caller)) {
    last_poll_ns_.store(now_ns, std::memory_order_relaxed);
    thread_state_.store(ThreadState::ASIDE);
  }
  duty_.end(caller, more, now_ns);
}

void Driver::wait_while_others_watch(Waiter& waiter, int handed_fd) {
  pollfd waited[] = {
      {waiter.channel.fd(), POLLIN, 0}, {duty_.closed_fd(), POLLIN, 0}, {handed_fd, POLLIN, 0}};
  timespec left{};
  const std::uint64_t until_ns = std::min(waiter.deadline_ns, monotonic_ns() + kLongestSleepNs);
  const int ready = ppoll(waited, 3, time_until(until_ns, left), nullptr);
  waiter.interrupted = ready < 0;
  const int all = waited[0].revents | waited[1].revents | waited[2].revents;
  if (ready > 0 && (all & POLLNVAL) != 0) look_again_later();
}

void Driver::end_waits() {
  duty_.close();
  kick();
}

}  // namespace softhca
