// Callers who poll and post: they do the work themselves.
#include <algorithm>
#include <utility>

#include "driver/driver.hpp"

namespace softhca {
namespace {

// A caller that polled this recently is expected to poll again: it does the work with less latency
// than the thread could.
constexpr std::uint64_t kPollingNs = 100'000;
// A caller that is back this soon after a poll that found nothing has nothing else to do, and the
// way through its program takes longer than another look.
constexpr std::uint64_t kBackAtOnceNs = 5'000;
constexpr int kLooks = 4;
// The same for neighbours, at whom a look costs a nanosecond or two.
constexpr std::size_t kNeighbourLooks = 100;
// Rounds of up to 64 packets or a train each: a caller wants to return soon.
constexpr int kCallerRounds = 8;
// While there is more to send, only one round in so many looks whether something has come.
constexpr int kRoundsPerLook = 4;

}  // namespace

Result<std::size_t> Driver::poll_cq(std::uint32_t cq, std::span<Completion> out) {
  if (!is_usable()) return why_unusable();
  bool due = false;
  std::unique_lock lock(guarded_->mutex);
  Result<std::size_t> polled = poll_under_lock(cq, out, due);
  lock.unlock();
  if (due) pump_transmit();
  if (!polled.ok() || polled.value > 0) return polled;
  return may_skip_wire() ? polled : poll_everything(cq, out);
}

Result<std::size_t> Driver::poll_everything(std::uint32_t cq, std::span<Completion> out) {
  int looks = 1;
  const YieldHabit::Yield yielded = be_patient(looks);
  do {
    pump(kReceive);
  } while (--looks > 0 && !quiet_wire_.is_busy());
  bool due = false;
  Result<std::size_t> polled = 0;
  {
    const std::lock_guard lock(guarded_->mutex);
    polled = poll_under_lock(cq, out, due);
  }
  if (due) pump_transmit();
  yields_.learn(yielded, polled.ok() && polled.value > 0);
  return polled;
}

bool Driver::try_poll_cq(std::uint32_t cq, std::span<Completion> out, Result<std::size_t>& polled,
                         bool& due) {
  const std::unique_lock lock(guarded_->mutex, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  polled = poll_under_lock(cq, out, due);
  return true;
}

Result<std::size_t> Driver::poll_under_lock(std::uint32_t cq, std::span<Completion> out,
                                            bool& due) {
  const Result<std::size_t> polled = guarded_->adapter.poll_cq(cq, out);
  if (polled.ok() && polled.value > 0) {
    note_fruitful_poll();
    return polled;
  }
  if (!polled.ok() || !neighbourhood_ || !neighbourhood_->is_inhabited()) return polled;
  if (!neighbourhood_->has_work() && !waits_for_neighbours()) return polled;
  // The longer it takes, the less shall the thread think that the caller has gone.
  const std::uint32_t fetches = caller_fetches_.load(std::memory_order_relaxed);
  caller_fetches_.store(fetches + 1, std::memory_order_relaxed);
  const bool fetched = fetch_and_settle(due);
  caller_fetches_.store(fetches + 2, std::memory_order_relaxed);
  if (!fetched) return polled;
  note_fruitful_poll();
  return guarded_->adapter.poll_cq(cq, out);
}

// A caller that polls in vain once more has nothing else to do: what comes while it is on its way
// through its program would lie there meanwhile.
bool Driver::waits_for_neighbours() {
  if (!std::exchange(polled_in_vain_, true) || yields_.is_crowded()) return false;
  const std::size_t step = std::max<std::size_t>(neighbourhood_->count(), 1);
  for (std::size_t looks = 0; looks < kNeighbourLooks; looks += step) {
    if (neighbourhood_->has_work()) return true;
  }
  return false;
}

YieldHabit::Yield Driver::be_patient(int& looks) {
  const std::uint64_t now_ns = monotonic_ns();
  const std::uint64_t last_ns = last_poll_ns_.exchange(now_ns, std::memory_order_relaxed);
  // Neighbours are looked for once in each poll.
  const bool alone = !neighbourhood_ || !neighbourhood_->is_inhabited();
  if (alone && yields_.is_waiting() && now_ns - last_ns < kBackAtOnceNs) looks = kLooks;
  return yields_.in_vain(now_ns);
}

// With the adapter locked, takes in what neighbours have sent. True: something had come.
bool Driver::fetch_and_settle(bool& due) {
  guarded_->adapter.begin_call();
  const bool fetched = neighbourhood_->fetch(kAskClock);
  local_news_.looked(fetched, neighbourhood_->has_lent());
  due = settle_locally();
  return fetched;
}

bool Driver::fetch_under_lock() {
  if (!neighbourhood_ || !neighbourhood_->is_inhabited()) return false;
  const std::lock_guard lock(guarded_->mutex);
  bool due = false;
  return neighbourhood_->has_work() && (fetch_and_settle(due) || due);
}

bool Driver::may_skip_wire() {
  return neighbourhood_ && neighbourhood_->is_inhabited() &&
         quiet_wire_.may_skip(last_poll_ns_.load(std::memory_order_relaxed), yields_.is_crowded());
}

bool Driver::settle_locally() {
  Adapter& adapter = guarded_->adapter;
  const bool more = adapter.exchange(kAskClock);
  // Who destroys an object takes its events along.
  if (async_bell_.rings()) async_bell_.set(adapter.has_event());
  return more || adapter.wants_driver() ||
         adapter.next_deadline_ns() < armed_ns_.load(std::memory_order_relaxed);
}

// While the thread keeps aside for a caller that polls, acknowledgements may wait for what the
// caller sends next. The thread looks after those of a caller that does not come back.
bool Driver::may_be_patient() const {
  return thread_state_.load(std::memory_order_relaxed) == ThreadState::ASIDE &&
         last_poll_ns_.load(std::memory_order_relaxed) >
             impatient_until_ns_.load(std::memory_order_relaxed);
}

// A caller's share of the work. What is left when it has done enough goes to the thread.
void Driver::pump(unsigned work) {
  const Outcome outcome = progress(work, kCallerRounds, may_be_patient());
  const bool abandons_acks = holds_acks_.load() && thread_state_.load() != ThreadState::ASIDE;
  if (outcome != Outcome::MORE && !abandons_acks) return;
  work_left_.store(true);
  if (thread_state_.load() == ThreadState::ASLEEP) kick();
}

// The bits are set before the engine is tried, and looked at after it is let go: whoever finds it
// busy leaves his work to the holder, and it cannot be missed.
Driver::Outcome Driver::progress(unsigned work, int max_rounds, bool patient, bool neighbours) {
  pending_.fetch_or(work);
  int rounds = 0;
  while (pending_.load() != 0) {
    if (rounds >= max_rounds) return Outcome::MORE;
    if (!try_enter()) return Outcome::BUSY;
    bool more = false;
    bool receive = false;
    do {
      const unsigned bits = pending_.exchange(0);
      receive |= (bits & kReceive) != 0;
      more |= neighbours && fetch_under_lock();
      const bool look = receive && (rounds % kRoundsPerLook == 0 || !engine_->has_more_to_send());
      more = engine_->round(look, more || (bits & kTransmit) != 0, patient);
    } while (more && ++rounds < max_rounds);
    ++rounds;
    holds_acks_.store(engine_->holds_acks());
    const std::uint64_t deadline_ns = arm();
    // A thread that is awake looks by itself.
    if (thread_state_.load() == ThreadState::ASLEEP) timer_.arm(deadline_ns, monotonic_ns());
    if (engine_->wire().failure() != 0) wire_lost_.store(true);
    quiet_wire_.looked(engine_->take_arrivals());
    leave();
    if (more) return Outcome::MORE;
  }
  return Outcome::IDLE;
}

// With the adapter locked: a caller who makes an earlier deadline meanwhile compares it with this
// one, not with the one that it takes the place of.
std::uint64_t Driver::arm() {
  const std::lock_guard lock(guarded_->mutex);
  engine_->heed_adapter(guarded_->adapter.next_deadline_ns());
  const std::uint64_t deadline_ns = engine_->deadline_ns();
  armed_ns_.store(deadline_ns);
  return deadline_ns;
}

// Under the lock. Costs less than the time, which fruitless polls have to ask for anyway.
void Driver::note_fruitful_poll() {
  polled_in_vain_ = false;
  yields_.found();
  const std::uint32_t polls = fruitful_polls_.load(std::memory_order_relaxed);
  fruitful_polls_.store(std::max(polls + 1, 1u), std::memory_order_relaxed);
}

bool Driver::caller_is_polling() {
  const std::uint32_t polls = fruitful_polls_.load(std::memory_order_relaxed);
  if (std::exchange(fruitful_polls_seen_, polls) != polls && polls != 0) return true;
  const std::uint64_t last_ns = last_poll_ns_.load(std::memory_order_relaxed);
  const std::uint64_t now_ns = monotonic_ns();
  return caller_fetches_.load(std::memory_order_relaxed) % 2 != 0 ||
         (last_ns != 0 && (last_ns >= now_ns || now_ns - last_ns < kPollingNs));
}

void Driver::caller_sleeps() {
  if (duty_.is_away()) return;  // It does the work itself while it waits.
  last_poll_ns_.store(0, std::memory_order_relaxed);
  fruitful_polls_.store(0, std::memory_order_relaxed);
  if (thread_state_.load() == ThreadState::ASIDE) kick();
}

}  // namespace softhca
