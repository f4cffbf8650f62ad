#include "driver/driver.hpp"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "driver/fork_generation.hpp"
#include "driver/signals_blocked.hpp"

namespace softhca {
namespace {

// A caller that polled this recently is expected to poll again: it does the work with less latency
// than the thread could.
constexpr std::uint64_t kPollingNs = 100'000;
// How long the thread looks away from a caller that polls; it doubles from the one to the other
// while the caller goes on, and bounds how long peers wait once the caller has stopped.
constexpr std::uint64_t kMinAsideNs = 100'000;
constexpr std::uint64_t kMaxAsideNs = 1'000'000;
// A caller's fruitless polls cost nobody else the processor after this time.
constexpr std::uint64_t kYieldAfterNs = 50'000;
constexpr std::uint64_t kYieldToPeerNs = 1'000;
// A yield that took so long let somebody else run.
constexpr std::uint64_t kSomebodyRanNs = 4'000;
// A caller that is back this soon after a poll that found nothing has nothing else to do, and the
// way through its program takes longer than another look.
constexpr std::uint64_t kBackAtOnceNs = 5'000;
constexpr int kLooks = 4;
// Rounds of up to 64 packets or a train each. A caller wants to return soon; the thread has nothing
// else to do, but looks whether it shall stop.
constexpr int kCallerRounds = 8;
constexpr int kThreadRounds = 64;
// While there is more to send, only one round in so many looks whether something has come.
constexpr int kRoundsPerLook = 4;
// How long the thread stays awake for neighbours that it has heard of, and for a busy network.
constexpr std::uint64_t kLingerNs = 30'000;
// And for those that are about to fetch something.
constexpr std::uint64_t kLingerForBorrowersNs = 500'000;
// So many sleeps in a row that were shorter say that the next one will be.
constexpr int kShortSleeps = 3;
// Where this many looks at the network brought nothing, only one in so many polls may look there,
// and waits longer for each look that brings nothing again: one costs as much as dozens of polls.
constexpr std::uint32_t kWireIsQuiet = 64;
constexpr std::uint32_t kPollsPerWire = 32;
constexpr std::uint64_t kPatienceStepNs = 1'000;
constexpr std::uint32_t kMostQuiet = kWireIsQuiet + 50;
// Acknowledgements that waited for a caller who did not come back: the next ones do not wait.
constexpr std::uint64_t kImpatientNs = 10'000'000;
// A thread whose descriptors were closed under it cannot be woken any more.
constexpr long kLookAgainNs = 10'000'000;

DriverError system_error(const char* what, int error) {
  return {error, std::string(what) + ": " + std::strerror(error)};
}

std::unique_ptr<Link> with_rules(std::unique_ptr<Link> link,
                                 const std::shared_ptr<SharedFaults>& rules,
                                 const std::shared_ptr<GuardedAdapter>& guarded) {
  if (!rules) return link;
  return std::make_unique<
      ScriptedLink>(std::move(link), rules, [guarded](std::uint32_t qpn, Addressee& addressee) {
    QpInit init;
    const std::lock_guard lock(guarded->mutex);
    const Result<QpAttr> found = guarded->adapter.query_qp(qpn, init);
    addressee = {found.value.dest_qp_num, found.value.rq_psn, guarded->adapter.source_port(qpn)};
    return found.ok();
  });
}

// What is left until then; null if it is never.
const timespec* time_until(std::uint64_t deadline_ns, timespec& left) {
  if (deadline_ns == kNever) return nullptr;
  const std::uint64_t now_ns = monotonic_ns();
  const std::uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
  left.tv_sec = static_cast<time_t>(left_ns / 1'000'000'000u);
  left.tv_nsec = static_cast<long>(left_ns % 1'000'000'000u);
  return &left;
}

std::unique_ptr<Link> with_faults(std::unique_ptr<Link> link, const FaultSettings& settings) {
  if (!settings.any()) return link;
  return std::make_unique<FaultLink>(std::move(link), settings);
}

}  // namespace

Driver::Driver(std::shared_ptr<GuardedAdapter> adapter, std::unique_ptr<UdpLink> wire,
               DriverOptions options)
    : fork_generation_(softhca::fork_generation()),
      guarded_(std::move(adapter)),
      options_(std::move(options)),
      udp_(wire.get()),
      opened_wire_(std::move(wire)),
      yield_after_ns_(kYieldAfterNs) {}

Driver::~Driver() { close(); }

DriverError Driver::open_descriptors() {
  if (const int error = async_bell_.open(); error != 0) {
    return system_error("cannot make an event descriptor", error);
  }
  if (const int error = timer_.open(); error != 0) {
    return system_error("cannot make a timer", error);
  }
  kick_.reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  return kick_.is_open() ? DriverError{} : system_error("cannot make an event descriptor", errno);
}

DriverError Driver::start() {
  DriverError error = open_descriptors();
  if (!error.ok()) return error;
  Capture capture;
  if (!options_.capture_path.empty()) {
    error = Capture::open(options_.capture_path, capture);
    if (!error.ok()) return error;
  }
  std::unique_ptr<Link> wire = with_faults(std::move(opened_wire_), options_.faults);
  if (options_.faults.any()) faults_ = static_cast<FaultLink*>(wire.get());
  wire = with_rules(std::move(wire), options_.fault_rules, guarded_);
  FaultSettings loopback_faults = options_.faults;
  ++loopback_faults.seed;
  engine_ = std::make_unique<Engine>(
      guarded_, std::move(wire),
      with_rules(with_faults(std::make_unique<LoopbackLink>(), loopback_faults),
                 options_.fault_rules, guarded_),
      std::move(capture), async_bell_, *completion_sinks_);
  arrival_fd_ = engine_->wire().arrival_fd();
  ready_fd_ = engine_->wire().ready_fd();
  address_ = udp_->local();
  address_condition_.link_up = guarded_->adapter.config().port_active;
  if (guarded_->adapter.config().shortcut) {
    neighbourhood_ = Neighbourhood::open(address_.gid, guarded_->mutex, guarded_->adapter);
    const std::lock_guard lock(guarded_->mutex);
    guarded_->adapter.set_paths(neighbourhood_.get());
  }
  // Without it the port stays as it is: no reason to do without the device.
  static_cast<void>(address_monitor_.open());
  return start_thread();
}

DriverError Driver::start_thread() {
  const SignalsBlocked blocked;
  try {
    thread_ = std::make_unique<std::thread>([this] { run(); });
  } catch (const std::system_error& failure) {
    return system_error("cannot start the driver's thread", failure.code().value());
  }
  pthread_setname_np(thread_->native_handle(), "softhca");
  return {};
}

void Driver::close() {
  if (fork_generation_ != softhca::fork_generation()) {
    abandon();
    return;
  }
  if (closed_.exchange(true)) return;
  stopping_.store(true);
  if (thread_) {
    kick();
    thread_->join();
    thread_.reset();
  }
  // Never left again: whoever still calls finds the engine busy and goes away.
  while (!try_enter()) std::this_thread::yield();
  if (descriptors_lost_) {
    kick_.release();
    timer_.lose();
  }
  if (engine_) {
    engine_->round(false, true, false);
    engine_->close();
    engine_.reset();
  }
  opened_wire_.reset();
  udp_ = nullptr;
  faults_ = nullptr;
  const std::lock_guard lock(guarded_->mutex);
  guarded_->adapter.set_paths(nullptr);
  neighbourhood_.reset();
  async_bell_.ring_for_good();
}

// Another thread of the parent may have been anywhere when it forked: what it worked on is in an
// unknown state, and is forgotten without being destroyed.
void Driver::abandon() {
  if (closed_.exchange(true)) return;
  if (engine_) engine_->abandon();
  if (opened_wire_) opened_wire_->abandon();
  if (neighbourhood_) neighbourhood_->abandon();
  static_cast<void>(neighbourhood_.release());
  static_cast<void>(engine_.release());
  static_cast<void>(opened_wire_.release());
  static_cast<void>(thread_.release());
  static_cast<void>(new std::shared_ptr<GuardedAdapter>(guarded_));
  kick_.reset();
  address_monitor_.close();
  timer_.abandon();
  async_bell_.abandon();
  static_cast<void>(completion_sinks_.release());
}

Status Driver::usable() const {
  if (fork_generation_ != softhca::fork_generation()) {
    return refuse(EIO, "device", 0, "belongs to the parent process: open one after fork()");
  }
  if (closed_.load(std::memory_order_relaxed)) return refuse(ENODEV, "device", 0, "is closed");
  return Status::success();
}

Result<std::size_t> Driver::poll_cq(std::uint32_t cq, std::span<Completion> out) {
  if (const Status status = usable(); !status.ok()) return status;
  bool due = false;
  std::unique_lock lock(guarded_->mutex);
  Result<std::size_t> polled = poll_under_lock(cq, out, due);
  lock.unlock();
  if (due) pump_transmit();
  if (!polled.ok() || polled.value > 0) {
    polling_since_ns_.store(0, std::memory_order_relaxed);
    return polled;
  }
  if (may_skip_wire()) return polled;
  int looks = 1;
  const Yield yielded = be_patient(looks);
  do {
    pump(kReceive);
  } while (--looks > 0 && looks_since_wire_.load(std::memory_order_relaxed) != 0);
  lock.lock();
  due = false;
  polled = poll_under_lock(cq, out, due);
  lock.unlock();
  if (due) pump_transmit();
  if (yielded != Yield::NOT_DONE) learn_from_yield(yielded, polled.ok() && polled.value > 0);
  if (!polled.ok() || polled.value > 0) polling_since_ns_.store(0, std::memory_order_relaxed);
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
  if (!polled.ok() || polled.value > 0 || !neighbourhood_ || !neighbourhood_->is_inhabited() ||
      !neighbourhood_->has_work()) {
    return polled;
  }
  const bool fetched = fetch_and_settle(due);
  return fetched ? guarded_->adapter.poll_cq(cq, out) : polled;
}

Result<bool> Driver::next_event(AsyncEvent& event) {
  if (const Status status = usable(); !status.ok()) return status;
  const std::lock_guard lock(guarded_->mutex);
  const bool taken = guarded_->adapter.next_event(event);
  async_bell_.set(guarded_->adapter.has_event());
  return taken;
}

// A caller that has polled for longer than a round trip lets others have the processor: the peer it
// waits for may be one of them, where there are more programs than processors.
Driver::Yield Driver::be_patient(int& looks) {
  const std::uint64_t now_ns = monotonic_ns();
  const std::uint64_t last_ns = last_poll_ns_.exchange(now_ns, std::memory_order_relaxed);
  const std::uint64_t since_ns = polling_since_ns_.load(std::memory_order_relaxed);
  // Neighbours are looked for once in each poll.
  const bool alone = !neighbourhood_ || !neighbourhood_->is_inhabited();
  if (alone && since_ns != 0 && now_ns - last_ns < kBackAtOnceNs) looks = kLooks;
  if (since_ns == 0) polling_since_ns_.store(now_ns, std::memory_order_relaxed);
  if (since_ns == 0 || now_ns - since_ns < yield_after_ns_.load(std::memory_order_relaxed)) {
    return Yield::NOT_DONE;
  }
  sched_yield();
  return monotonic_ns() - now_ns > kSomebodyRanNs ? Yield::SOMEBODY_RAN : Yield::NOBODY_RAN;
}

// Where letting others have the processor brought the completion, the peer shares it with us, and
// waiting for it any longer only keeps it from answering. Where nobody wants it, it does not.
void Driver::learn_from_yield(Yield yielded, bool found) {
  const std::uint64_t before_ns = yield_after_ns_.load(std::memory_order_relaxed);
  const std::uint64_t after_ns = yielded == Yield::NOBODY_RAN
                                     ? std::min(2 * before_ns, kYieldAfterNs)
                                 : found ? kYieldToPeerNs
                                         : kYieldAfterNs;
  yield_after_ns_.store(after_ns, std::memory_order_relaxed);
}

void Driver::meet(const Gid& gid) {
  if (neighbourhood_ && usable().ok()) neighbourhood_->meet(gid);
}

// With the adapter locked, takes in what neighbours have sent. True: something had come.
bool Driver::fetch_and_settle(bool& due) {
  const std::uint64_t now_ns = monotonic_ns();
  const bool fetched = neighbourhood_->fetch(now_ns);
  if (fetched) local_news_.store(true, std::memory_order_relaxed);
  neighbours_borrow_.store(neighbourhood_->has_lent(), std::memory_order_relaxed);
  due = settle_locally(now_ns);
  return fetched;
}

bool Driver::fetch_under_lock() {
  if (!neighbourhood_ || !neighbourhood_->is_inhabited()) return false;
  const std::lock_guard lock(guarded_->mutex);
  bool due = false;
  return neighbourhood_->has_work() && (fetch_and_settle(due) || due);
}

bool Driver::may_skip_wire() {
  if (!neighbourhood_ || !neighbourhood_->is_inhabited()) return false;
  const std::uint32_t quiet = looks_since_wire_.load(std::memory_order_relaxed);
  if (quiet < kWireIsQuiet) return false;
  const std::uint32_t polls = skipped_polls_.load(std::memory_order_relaxed) + 1;
  skipped_polls_.store(polls, std::memory_order_relaxed);
  return polls % kPollsPerWire != 0 ||
         monotonic_ns() - last_poll_ns_.load(std::memory_order_relaxed) <
             (quiet - kWireIsQuiet) * kPatienceStepNs;
}

bool Driver::settle_locally(std::uint64_t now_ns) {
  Adapter& adapter = guarded_->adapter;
  const bool more = adapter.exchange(now_ns);
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
Driver::Outcome Driver::progress(unsigned work, int max_rounds, bool patient) {
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
      more |= fetch_under_lock();
      const bool look = receive && (rounds % kRoundsPerLook == 0 || !engine_->has_more_to_send());
      more = engine_->round(look, more || (bits & kTransmit) != 0, patient);
    } while (more && ++rounds < max_rounds);
    ++rounds;
    holds_acks_.store(engine_->holds_acks());
    const std::uint64_t deadline_ns = engine_->deadline_ns();
    armed_ns_.store(deadline_ns);
    // A thread that is awake looks by itself.
    if (thread_state_.load() == ThreadState::ASLEEP) timer_.arm(deadline_ns, monotonic_ns());
    if (engine_->wire().failure() != 0) wire_lost_.store(true);
    const std::uint32_t quiet = looks_since_wire_.load(std::memory_order_relaxed);
    looks_since_wire_.store(engine_->take_arrivals() ? 0 : std::min(quiet + 1, kMostQuiet),
                            std::memory_order_relaxed);
    leave();
    if (more) return Outcome::MORE;
  }
  return Outcome::IDLE;
}

// For what is rare and must happen, such as joining a group; the wait is as long as a few rounds.
// False if the driver was closed meanwhile.
bool Driver::enter() {
  while (!try_enter()) {
    if (closed_.load()) return false;
    std::this_thread::yield();
  }
  if (!closed_.load()) return true;
  leave();
  return false;
}

void Driver::leave() { engine_busy_.store(false); }

template <class Function>
auto Driver::with_engine(Function&& function) -> decltype(function()) {
  if (!enter()) return {};
  auto result = function();
  leave();
  pump(kTransmit);  // Takes over what others left while they found the engine busy.
  return result;
}

DriverError Driver::join_group(const Gid& group) {
  if (const Status status = usable(); !status.ok()) return {status.error, status.rule};
  return with_engine([&] { return engine_->wire().join_group(group); });
}

DriverError Driver::leave_group(const Gid& group) {
  if (const Status status = usable(); !status.ok()) return {status.error, status.rule};
  return with_engine([&] { return engine_->wire().leave_group(group); });
}

DriverCounters Driver::counters() {
  DriverCounters counters;
  if (!usable().ok()) return counters;
  return with_engine([&] {
    counters.udp = udp_->counters();
    counters.receive_overflows = udp_->receive_overflows();
    counters.captured_pkts = engine_->capture().packets();
    counters.capture_failure = engine_->capture().failure();
    if (faults_ != nullptr) {
      counters.sent_faults = faults_->send_counters();
      counters.received_faults = faults_->receive_counters();
    }
    return counters;
  });
}

bool Driver::caller_is_polling() const {
  const std::uint64_t last_ns = last_poll_ns_.load(std::memory_order_relaxed);
  const std::uint64_t now_ns = monotonic_ns();
  return last_ns != 0 && (last_ns >= now_ns || now_ns - last_ns < kPollingNs);
}

void Driver::caller_sleeps() {
  last_poll_ns_.store(0, std::memory_order_relaxed);
  if (thread_state_.load() == ThreadState::ASIDE) kick();
}

void Driver::run() {
  heed_address();  // It may have changed before changes were told.
  std::uint64_t aside_ns = kMinAsideNs;
  bool lingering = false;
  while (!stopping_.load()) {
    if (caller_is_polling()) {
      step_aside(aside_ns);
      aside_ns = std::min(aside_ns * 2, kMaxAsideNs);
      continue;
    }
    aside_ns = kMinAsideNs;
    const bool was_left = work_left_.exchange(false);
    if (holds_acks_.load()) impatient_until_ns_.store(monotonic_ns() + kImpatientNs);
    // While neighbours keep it awake it looks at the network as seldom as callers do.
    const bool skips = lingering && may_skip_wire();
    const unsigned work = skips                   ? kTransmit
                          : lingers_ && !was_left ? kReceive
                                                  : kTransmit | kReceive;
    lingering = false;
    switch (progress(work, kThreadRounds, false)) {
      case Outcome::MORE:
        break;
      case Outcome::BUSY:
        step_aside(kMinAsideNs);
        break;
      case Outcome::IDLE:
        lingering = neighbours_were_here();
        if (lingering || wire_was_busy()) break;
        sleep_until_ready();
        break;
    }
  }
}

void Driver::step_aside(std::uint64_t wait_ns) {
  thread_state_.store(ThreadState::ASIDE);
  const timespec timeout{0, static_cast<long>(wait_ns)};
  pollfd waited[] = {{kick_.get(), POLLIN, 0},
                     {address_monitor_.fd(), POLLIN, 0},
                     {neighbourhood_ ? neighbourhood_->ready_fd() : -1, POLLIN, 0}};
  ppoll(waited, 3, &timeout, nullptr);
  thread_state_.store(ThreadState::RUNNING);
  if (waited[0].revents != 0) clear_kick();
  heed_address_if(waited[1].revents);
  if ((waited[2].revents & POLLIN) != 0) neighbourhood_->serve();
}

void Driver::sleep_until_ready() {
  if (descriptors_lost_) {
    const timespec look_again{0, kLookAgainNs};
    ppoll(nullptr, 0, &look_again, nullptr);
    return;
  }
  thread_state_.store(ThreadState::ASLEEP);
  pollfd waited[] = {{kick_.get(), POLLIN, 0},
                     {timer_.fd(), POLLIN, 0},
                     {wire_lost_.load() ? -1 : ready_fd_, POLLIN, 0},
                     {address_monitor_.fd(), POLLIN, 0},
                     {neighbourhood_ ? neighbourhood_->ready_fd() : -1, POLLIN, 0},
                     {wire_lost_.load() ? -1 : arrival_fd_, POLLIN, 0}};
  // Work that was left before the state could be seen comes without a kick, and a deadline that was
  // set before without the timer.
  if (!work_left_.load() && !stopping_.load() && neighbours_are_quiet()) {
    timespec left{};
    const std::uint64_t asleep_ns = monotonic_ns();
    ppoll(waited, 6, time_until(armed_ns_.load(), left), nullptr);
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
                  waited[5].revents;
  if ((all & POLLNVAL) != 0) {
    lose_descriptors();
  }
}

// One that was heard of just now is likely to go on, and waking up takes longer than waiting for
// it.
bool Driver::neighbours_were_here() {
  if (!neighbourhood_ || !neighbourhood_->is_inhabited() || stopping_.load()) return false;
  const std::uint64_t now_ns = monotonic_ns();
  if (local_news_.exchange(false, std::memory_order_relaxed)) local_news_ns_ = now_ns;
  const bool borrowed = neighbours_borrow_.load(std::memory_order_relaxed);
  if (now_ns - local_news_ns_ >= (borrowed ? kLingerForBorrowersNs : kLingerNs)) return false;
  sched_yield();
  return true;
}

// Whether to look at the wire again instead of sleeping: where packets follow each other so fast
// that the last sleeps were hardly begun, waking this thread would cost their sender more than
// anything else.
bool Driver::wire_was_busy() {
  lingers_ = false;
  if (short_sleeps_ < kShortSleeps || stopping_.load() || wire_lost_.load()) return false;
  const std::uint64_t now_ns = monotonic_ns();
  if (looks_since_wire_.load(std::memory_order_relaxed) == 0) wire_news_ns_ = now_ns;
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
  descriptors_lost_ = true;
  while (!try_enter()) std::this_thread::yield();
  engine_->wire().lose(EBADF);
  address_monitor_.lose();
  leave();
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
  const AddressCondition condition = condition_of(address_);
  if (condition == address_condition_) return;
  {
    const std::lock_guard lock(guarded_->mutex);
    Adapter& adapter = guarded_->adapter;
    if (condition.link_up != address_condition_.link_up) adapter.set_port_active(condition.link_up);
    if (condition.present != address_condition_.present) {
      static_cast<void>(adapter.set_gid(0, condition.present ? address_.gid : Gid{}));
    }
  }
  address_condition_ = condition;
  pump(kTransmit);
}

void Driver::kick() { eventfd_write(kick_.get(), 1); }

void Driver::clear_kick() {
  eventfd_t count = 0;
  eventfd_read(kick_.get(), &count);
}

}  // namespace softhca
