#include "bindings/hca.hpp"

#include <thread>

namespace softhca {

Hca::Hca(AdapterConfig config)
    : guarded_(std::make_shared<GuardedAdapter>(std::move(config))),
      simulated_(std::make_shared<SimulatedSide>()) {}

Hca::Hca(OpenedDevice device)
    : guarded_(std::move(device.adapter)), driver_(std::move(device.driver)) {}

Hca::~Hca() { close(); }

Status Hca::may_await_work(const char* call) const {
  if (!driver_ || !driver_->asks_caller()) return Status::success();
  return refuse(EDEADLK, call, 0,
                "would wait for the packet that this function of LinkFaults is asked about");
}

Status Hca::why_unusable() const {
  if (fork_generation_ != softhca::fork_generation()) {
    return refuse(EIO, "device", 0, "belongs to the parent process: open one after fork()");
  }
  return refuse(ENODEV, "device", 0, "is closed");
}

void Hca::close() {
  // In a child of fork() the calls of the parent's other threads never end.
  const bool ours = fork_generation_ == softhca::fork_generation();
  if (closed_.exchange(true)) return;
  if (ours && driver_ && driver_->asks_caller()) {
    // The garbage collector, in a predicate: it cannot wait for what waits for the predicate.
    std::thread([driver = driver_] { driver->close(); }).detach();
    return;
  }
  const GilReleased released;
  if (ours && driver_) driver_->end_waits();
  while (ours && calls_.load() != 0) std::this_thread::yield();
  if (driver_) {
    driver_->close();
  } else {
    simulated_->closed = true;
    if (simulated_->bell.fd() >= 0) simulated_->bell.ring_for_good();
  }
}

Result<std::size_t> Hca::poll(std::uint32_t cq, std::span<Completion> out,
                              std::uint64_t patience_ns) {
  const Result<std::size_t> waiting = poll_waiting(cq, out);
  if (!waiting.ok() || waiting.value > 0) return waiting;
  if (!driver_) {
    if (!idle_.is_valid() || idle_.is_none()) return waiting;
    idle_();
    return poll_waiting(cq, out);
  }
  // Nobody begins to close a device that is usable while we have the GIL.
  if (patience_ns == 0 && is_usable() && driver_->may_skip_wire()) return waiting;
  const PolledBatches::Room room(batches, out);
  const GilReleased released;
  const InUse in_use(*this);
  if (!in_use.status().ok()) return in_use.status();
  const std::uint64_t until_ns = patience_ns == 0 ? 0 : monotonic_ns() + patience_ns;
  Result<std::size_t> polled = driver_->poll_everything(cq, out);
  while (polled.ok() && polled.value == 0 && until_ns != 0 && monotonic_ns() < until_ns) {
    polled = driver_->poll_cq(cq, out);
  }
  return polled;
}

// For a caller that has the GIL.
void Hca::pump_transmit() {
  const InUse in_use(*this);
  const GilReleased released;
  driver_->pump_transmit();
}

Result<std::size_t> Hca::poll_waiting(std::uint32_t cq, std::span<Completion> out) {
  if (const Status status = usable(); !status.ok()) return status;
  if (driver_) {
    Result<std::size_t> polled = 0;
    bool due = false;
    if (driver_->try_poll_cq(cq, out, polled, due)) {
      if (due) pump_transmit();
      return polled;
    }
  } else if (const std::unique_lock lock(guarded_->mutex, std::try_to_lock); lock.owns_lock()) {
    return guarded_->adapter.poll_cq(cq, out);
  }
  const PolledBatches::Room room(batches, out);
  const GilReleased released;
  const std::lock_guard lock(guarded_->mutex);
  return guarded_->adapter.poll_cq(cq, out);
}

Result<int> Hca::req_notify(std::uint32_t cq, std::uint32_t flags) {
  const Result<int> armed =
      call([&](Adapter& adapter) { return adapter.req_notify_cq(cq, flags); });
  if (driver_ && armed.ok() && armed.value == 0) driver_->caller_sleeps();
  return armed;
}

bool Hca::wait_for(CompletionChannel& channel, std::uint64_t deadline_ns) {
  if (!driver_ || driver_->asks_caller()) return false;
  const GilReleased released;
  const InUse in_use(*this);
  if (!in_use.status().ok()) return false;
  return driver_->wait_for(channel, deadline_ns) != Driver::Waited::CLOSED;
}

Result<std::optional<AsyncEvent>> Hca::next_async_event() {
  const GilReleased released;
  const InUse in_use(*this);
  if (!in_use.status().ok()) return in_use.status();
  AsyncEvent event;
  Result<bool> taken = false;
  if (driver_) {
    taken = driver_->next_event(event);
  } else {
    const std::lock_guard lock(guarded_->mutex);
    taken = guarded_->adapter.next_event(event);
    simulated_->notify(guarded_->adapter);
  }
  if (!taken.ok()) return taken.status;
  return taken.value ? std::optional(event) : std::nullopt;
}

DriverError Hca::join_group(const Gid& group) {
  const GilReleased released;
  const InUse in_use(*this);
  if (!driver_) return {};
  return driver_->join_group(group);
}

DriverError Hca::leave_group(const Gid& group) {
  const GilReleased released;
  const InUse in_use(*this);
  if (!driver_) return {};
  return driver_->leave_group(group);
}

Result<std::optional<DriverCounters>> Hca::driver_counters() {
  const GilReleased released;
  const InUse in_use(*this);
  if (!in_use.status().ok()) return in_use.status();
  return driver_ ? std::optional(driver_->counters()) : std::nullopt;
}

int Hca::async_event_fd() { return driver_ ? driver_->event_fd() : simulated_->bell.fd(); }

}  // namespace softhca
