// From start to close, and what has to wait for the engine.
#include "driver/driver.hpp"

#include <pthread.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "driver/signals_blocked.hpp"

namespace softhca {
namespace {

// What is left to be sent when a device is closed: not all of a READ that somebody is answered.
constexpr int kLastRounds = 64;

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
      opened_wire_(std::move(wire)) {}

Driver::~Driver() {
  close();
  if (descriptors_lost_.load()) async_bell_.lose();
}

DriverError Driver::open_descriptors() {
  if (const int error = async_bell_.open(); error != 0) {
    return system_error("cannot make an event descriptor", error);
  }
  if (const int error = timer_.open(); error != 0) {
    return system_error("cannot make a timer", error);
  }
  if (const int error = duty_.open(); error != 0) {
    return system_error("cannot make an event descriptor", error);
  }
  kick_.reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  return kick_.is_open() ? DriverError{} : system_error("cannot make an event descriptor", errno);
}

DriverError Driver::start() {
  guarded_->adapter.use_clock(guarded_->clock);
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
  address_condition_.mtu_bytes = address_.mtu_bytes;
  address_condition_.link_up = guarded_->adapter.config().port_active;
  if (guarded_->adapter.config().shortcut) {
    neighbourhood_ = Neighbourhood::open(address_, guarded_->mutex, guarded_->adapter);
    const std::lock_guard lock(guarded_->mutex);
    guarded_->adapter.set_paths(neighbourhood_.get());
  }
  // Without it the port stays as it is: no reason to do without the device.
  static_cast<void>(address_monitor_.open());
  // The address may have changed before changes were told. Not the thread's to find out: the C
  // library ends a process whose descriptors somebody closes while it asks.
  heed_address();
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
    end_waits();
    while (duty_.is_waited_on()) std::this_thread::yield();
    thread_->join();
    thread_.reset();
  }
  if (wire_lost_.load() && !descriptors_lost_.load()) lose_descriptors();
  // Never left again: whoever still calls finds the engine busy and goes away.
  while (!try_enter()) std::this_thread::yield();
  if (descriptors_lost_.load()) {
    kick_.release();
    timer_.lose();
  }
  if (engine_) {
    {
      const std::lock_guard lock(guarded_->mutex);
      guarded_->adapter.settle_debts(monotonic_ns());
    }
    for (int rounds = 0; engine_->round(false, true, false) && rounds < kLastRounds; ++rounds) {
    }
    engine_->close();
    engine_.reset();
  }
  opened_wire_.reset();
  udp_ = nullptr;
  faults_ = nullptr;
  // Others may be meeting somebody, or about to look whether there is anybody: it stays.
  if (neighbourhood_) neighbourhood_->close();
  const std::lock_guard lock(guarded_->mutex);
  guarded_->adapter.set_paths(nullptr);
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
  duty_.abandon();
  async_bell_.abandon();
  static_cast<void>(completion_sinks_.release());
}

Status Driver::why_unusable() const {
  if (fork_generation_ != softhca::fork_generation()) {
    return refuse(EIO, "device", 0, "belongs to the parent process: open one after fork()");
  }
  return refuse(ENODEV, "device", 0, "is closed");
}

Result<bool> Driver::next_event(AsyncEvent& event) {
  if (const Status status = usable(); !status.ok()) return status;
  const std::lock_guard lock(guarded_->mutex);
  const bool taken = guarded_->adapter.next_event(event);
  async_bell_.set(guarded_->adapter.has_event());
  return taken;
}

void Driver::meet(const Gid& gid, int answer_ms) {
  if (neighbourhood_ && usable().ok()) neighbourhood_->meet(gid, answer_ms);
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

}  // namespace softhca
