// The thread that serves the peers while nobody else does.
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>

#include "adapter/path_mtu.hpp"
#include "driver/driver.hpp"
#include "driver/lost_descriptors.hpp"
#include "driver/time_left.hpp"

namespace softhca {
namespace {

// How long the thread looks away from a caller that polls; it doubles from the one to the other
// while the caller goes on, and bounds how long peers wait once the caller has stopped.
constexpr std::uint64_t kMinAsideNs = 100'000;
constexpr std::uint64_t kMaxAsideNs = 1'000'000;
// A caller that fetches whenever the thread looks has been left alone so often when the network
// gets its turn.
constexpr unsigned kMostLeftAlone = 3;
// The thread has nothing else to do, but looks whether it shall stop.
constexpr int kThreadRounds = 64;
// A caller that waits wants to know soon that it need not.
constexpr int kWaiterRounds = 8;
// How long the thread stays awake for neighbours that it has heard of, and for a busy network.
constexpr std::uint64_t kLingerNs = 30'000;
// So long it keeps the processor meanwhile.
constexpr std::uint64_t kAtOnceNs = 2'000;
// And for those that are about to fetch something.
constexpr std::uint64_t kLingerForBorrowersNs = 500'000;
// So many sleeps in a row that were shorter say that the next one will be.
constexpr int kShortSleeps = 3;
// Acknowledgements that waited for a caller who did not come back: the next ones do not wait.
constexpr std::uint64_t kImpatientNs = 10'000'000;
// Of rounds without a rest, one in so many looks at what else may have happened.
constexpr unsigned kRoundsPerGlance = 64;

}  // namespace

void Driver::run() {
  while (!stopping_.load()) {
    duty_.heed();
    if (duty_.is_threads()) {
      watch(nullptr);
    } else if (duty_.rest()) {
      thread_state_.store(ThreadState::RUNNING);
      work_left_.store(true);
    }
  }
}

void Driver::watch(Waiter* waiter) {
  if (++rounds_ % kRoundsPerGlance == 0) glance();
  if (caller_is_polling()) {
    const std::uint64_t last_ns = last_poll_ns_.load();
    const std::uint32_t fetches = caller_fetches_.load(std::memory_order_relaxed);
    aside_ns_ = std::clamp(aside_ns_, kMinAsideNs, kMaxAsideNs);
    step_aside(aside_ns_, waiter);
    aside_ns_ *= 2;
    // A caller who finds something at each poll looks at nothing else, and releases nothing. Where
    // it has been fetched from neighbours, the caller does that: who takes turns with it at long
    // payloads takes the processor from it, or has another one wait for the same bytes.
    const std::uint32_t fetches_now = caller_fetches_.load(std::memory_order_relaxed);
    const bool neighbours = fetches_now == fetches;
    // One that is at it has the adapter locked, and comes back to who waits for that only when it
    // has copied everything.
    if (fetches_now % 2 != 0 && ++left_alone_ < kMostLeftAlone) return;
    left_alone_ = 0;
    if (last_poll_ns_.load() == last_ns) {
      progress(kTransmit | kReceive, kThreadRounds, false, neighbours);
    }
    return;
  }
  aside_ns_ = kMinAsideNs;
  const bool was_left = work_left_.exchange(false);
  const bool patient = waiter != nullptr && monotonic_ns() > impatient_until_ns_.load();
  if (waiter == nullptr && holds_acks_.load()) {
    impatient_until_ns_.store(monotonic_ns() + kImpatientNs);
  }
  // While neighbours keep it awake it looks at the network as seldom as callers do.
  const bool skips = lingering_ && may_skip_wire();
  const unsigned work = skips ? kTransmit : lingers_ && !was_left ? kReceive : kTransmit | kReceive;
  lingering_ = false;
  const int rounds = waiter == nullptr ? kThreadRounds : kWaiterRounds;
  Outcome outcome = progress(work, rounds, patient);
  if (waiter != nullptr) {
    waiter->more = outcome == Outcome::MORE;
    if (waiter->channel.has_event()) return;
    // It has nothing to say, and acknowledgements do not wait while it sleeps.
    if (holds_acks_.load()) outcome = progress(kTransmit, rounds, false);
  }
  switch (outcome) {
    case Outcome::MORE:
      break;
    case Outcome::BUSY:
      step_aside(kMinAsideNs, waiter);
      break;
    case Outcome::IDLE:
      lingering_ = neighbours_were_here();
      if (lingering_ || wire_was_busy()) break;
      sleep_until_ready(waiter);
      break;
  }
}

// Those who greet or have gone are not kept waiting by others who never pause.
void Driver::glance() {
  if (descriptors_lost_) return;
  pollfd looked[] = {{address_monitor_.fd(), POLLIN, 0},
                     {neighbourhood_ ? neighbourhood_->ready_fd() : -1, POLLIN, 0}};
  if (::poll(looked, 2, 0) <= 0) return;
  heed_address_if(looked[0].revents);
  if ((looked[1].revents & POLLIN) != 0) neighbourhood_->serve();
}

void Driver::step_aside(std::uint64_t wait_ns, Waiter* waiter) {
  thread_state_.store(ThreadState::ASIDE);
  const timespec timeout{0, static_cast<long>(wait_ns)};
  pollfd waited[] = {{kick_.get(), POLLIN, 0},
                     {address_monitor_.fd(), POLLIN, 0},
                     {neighbourhood_ ? neighbourhood_->ready_fd() : -1, POLLIN, 0},
                     {waiter != nullptr ? waiter->channel.fd() : -1, POLLIN, 0}};
  const int ready = ppoll(waited, 4, &timeout, nullptr);
  if (waiter != nullptr && ready < 0) waiter->interrupted = true;
  thread_state_.store(ThreadState::RUNNING);
  if (waited[0].revents != 0) clear_kick();
  heed_address_if(waited[1].revents);
  if ((waited[2].revents & POLLIN) != 0) neighbourhood_->serve();
}

void Driver::sleep_until_ready(Waiter* waiter) {
  if (descriptors_lost_.load()) {
    look_again_later();
    return;
  }
  if (wire_lost_.load()) {
    lose_descriptors();
    return;
  }
  thread_state_.store(ThreadState::ASLEEP);
  pollfd waited[] = {{kick_.get(), POLLIN, 0},
                     {timer_.fd(), POLLIN, 0},
                     {ready_fd_, POLLIN, 0},
                     {address_monitor_.fd(), POLLIN, 0},
                     {neighbourhood_ ? neighbourhood_->ready_fd() : -1, POLLIN, 0},
                     {arrival_fd_, POLLIN, 0},
                     {waiter != nullptr ? waiter->channel.fd() : -1, POLLIN, 0}};
  // Work that was left before the state could be seen comes without a kick, and a deadline that was
  // set before without the timer.
  if (!work_left_.load() && !stopping_.load() && neighbours_are_quiet()) {
    timespec left{};
    const std::uint64_t asleep_ns = monotonic_ns();
    std::uint64_t until_ns = std::min(armed_ns_.load(), asleep_ns + kLongestSleepNs);
    if (waiter != nullptr) until_ns = std::min(until_ns, waiter->deadline_ns);
    const int ready = ppoll(waited, 7, time_until(until_ns, left), nullptr);
    if (waiter != nullptr && ready < 0) waiter->interrupted = true;
    const bool short_one = waited[5].revents != 0 && monotonic_ns() - asleep_ns < kLingerNs;
    short_sleeps_ = short_one ? std::min(short_sleeps_ + 1, kShortSleeps) : 0;
    if (waited[0].revents != 0) clear_kick();
    if ((waited[1].revents & POLLIN) != 0) timer_.clear();
  }
  thread_state_.store(ThreadState::RUNNING);
  if ((waited[4].revents & POLLIN) != 0) neighbourhood_->serve();
  neighbours_see_us_awake();
  heed_address_if(waited[3].revents);
  const int all = waited[0].revents | waited[1].revents | waited[2].revents | waited[4].revents |
                  waited[5].revents | waited[6].revents;
  if ((all & POLLNVAL) != 0) {
    lose_descriptors();
  }
}

// One that was heard of just now is likely to go on, and waking up takes longer than waiting for
// it.
bool Driver::neighbours_were_here() {
  if (!neighbourhood_ || !neighbourhood_->is_inhabited() || stopping_.load()) return false;
  const std::uint64_t age_ns = local_news_.age_ns(monotonic_ns());
  if (age_ns >= (local_news_.lends() ? kLingerForBorrowersNs : kLingerNs)) return false;
  // What follows at once comes before others had the processor.
  if (age_ns >= kAtOnceNs || yields_.is_crowded()) sched_yield();
  return true;
}

// Whether to look at the wire again instead of sleeping: where packets follow each other so fast
// that the last sleeps were hardly begun, waking this thread would cost their sender more than
// anything else.
bool Driver::wire_was_busy() {
  lingers_ = false;
  if (short_sleeps_ < kShortSleeps || stopping_.load() || wire_lost_.load()) return false;
  const std::uint64_t now_ns = monotonic_ns();
  if (quiet_wire_.is_busy()) wire_news_ns_ = now_ns;
  if (now_ns - wire_news_ns_ >= kLingerNs) {
    short_sleeps_ = 0;
    return false;
  }
  lingers_ = true;
  sched_yield();
  return true;
}

// From now on they wake us. False: one of them has sent something already.
bool Driver::neighbours_are_quiet() {
  if (!neighbourhood_ || !neighbourhood_->is_inhabited()) return true;
  const std::lock_guard lock(guarded_->mutex);
  return neighbourhood_->prepare_to_sleep();
}

void Driver::neighbours_see_us_awake() {
  if (!neighbourhood_ || !neighbourhood_->is_inhabited()) return;
  const std::lock_guard lock(guarded_->mutex);
  neighbourhood_->awake();
}

// Somebody in this process has closed descriptors that are ours. Which of them are left cannot be
// known, since numbers are used again: the device is lost.
void Driver::lose_descriptors() {
  descriptors_lost_.store(true);
  duty_.lose();
  while (!try_enter()) std::this_thread::yield();
  engine_->wire().lose(EBADF);
  address_monitor_.lose();
  leave();
  if (neighbourhood_) neighbourhood_->lose();
  completion_sinks_->lose();
  pump(kTransmit);
}

void Driver::heed_address_if(short revents) {
  if ((revents & POLLNVAL) != 0) {
    address_monitor_.lose();
  } else if (revents != 0) {
    heed_address();
  }
}

// Tells the adapter what has become of its address and of the interface that has it. Only changes
// are told, since tests order the port up and down as well.
void Driver::heed_address() {
  if (address_monitor_.fd() < 0) return;
  address_monitor_.clear();
  AddressCondition condition = condition_of(address_);
  if (condition.mtu_bytes == 0) condition.mtu_bytes = address_condition_.mtu_bytes;
  follow_address(condition);
  if (condition == address_condition_) return;
  {
    const std::lock_guard lock(guarded_->mutex);
    Adapter& adapter = guarded_->adapter;
    if (condition.link_up != address_condition_.link_up) adapter.set_port_active(condition.link_up);
    if (condition.mtu_bytes != address_condition_.mtu_bytes) {
      const std::uint8_t fits = path_mtu_code(condition.mtu_bytes, address_.gid.is_ipv4());
      adapter.set_active_mtu(std::min(fits, options_.max_mtu));
    }
    if (condition.present != address_condition_.present) {
      static_cast<void>(adapter.set_gid(0, condition.present ? address_.gid : Gid{}));
    }
  }
  address_condition_ = condition;
  pump(kTransmit);
}

// It may have come back on another interface: what goes to groups has to follow it there. What does
// not work yet is tried again with the next change.
void Driver::follow_address(const AddressCondition& condition) {
  const unsigned index = condition.interface_index;
  if (!condition.present || index == 0 || index == address_.interface_index || !enter()) return;
  const bool moved = engine_->wire().move_to(index).ok();
  leave();
  pump(kTransmit);  // Takes over what others left while they found the engine busy.
  if (moved) address_.interface_index = index;
}

void Driver::kick() {
  if (!descriptors_lost_.load()) eventfd_write(kick_.get(), 1);
}

void Driver::clear_kick() {
  eventfd_t count = 0;
  eventfd_read(kick_.get(), &count);
}

}  // namespace softhca
