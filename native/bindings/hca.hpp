// What a `Device` holds: an adapter, and the driver that runs it in real time. Without a driver it
// is a simulated one, and its time is what it was last told, or the clock of its fabric.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <type_traits>
#include <utility>

#include "bindings/cqe_table.hpp"
#include "bindings/gil.hpp"
#include "bindings/polled_batches.hpp"
#include "driver/completion_sink.hpp"
#include "driver/driver.hpp"
#include "driver/event_bell.hpp"
#include "driver/fork_generation.hpp"
#include "driver/guarded_adapter.hpp"
#include "driver/open_device.hpp"
#include "fabric/fabric.hpp"

namespace softhca {

// What takes the place of a driver in a simulation. A fabric shares it.
struct SimulatedSide {
  std::shared_ptr<VirtualClock> clock = std::make_shared<VirtualClock>();
  SinkTable sinks;
  EventBell bell;        // Open in a fabric only.
  bool touched = false;  // The adapter was called: it may have something to send.
  bool closed = false;

  // Hands out what the adapter, which is locked, has to tell.
  void notify(Adapter& adapter) {
    sinks.notify_all(adapter);
    if (bell.fd() >= 0) bell.set(adapter.has_event());
  }
};

class Hca {
 public:
  explicit Hca(AdapterConfig config);
  explicit Hca(OpenedDevice device);
  ~Hca();
  Hca(const Hca&) = delete;
  Hca& operator=(const Hca&) = delete;

  // Calls `verb(adapter)` or `verb(adapter, now_ns)`, which returns a Status or a Result, under the
  // lock and without the GIL. What it wants sent is sent. In a simulation the GIL is kept: it is
  // what guards the trace, which all adapters of a fabric write.
  template <class Verb>
  auto call(Verb&& verb) {
    if (!driver_) return call_without_gil(std::forward<Verb>(verb));
    const GilReleased released;
    return call_without_gil(std::forward<Verb>(verb));
  }

  // The same for a thread that does not hold the GIL, or keeps it.
  template <class Verb>
  auto call_without_gil(Verb&& verb) {
    auto timed = [&](Adapter& adapter, std::uint64_t now_ns) {
      if constexpr (std::is_invocable_v<Verb, Adapter&>) {
        return verb(adapter);
      } else {
        return verb(adapter, now_ns);
      }
    };
    using Outcome = decltype(timed(std::declval<Adapter&>(), std::uint64_t{0}));
    const InUse in_use(*this);
    if (!in_use.status().ok()) return Outcome(in_use.status());
    if (driver_) return driver_->with_adapter(timed);
    const std::lock_guard lock(guarded_->mutex);
    auto outcome = timed(guarded_->adapter, simulated_->clock->now_ns);
    simulated_->notify(guarded_->adapter);
    simulated_->touched = true;
    return outcome;
  }

  // The same without letting the GIL go, for what is quickly done: false, and nothing was called,
  // if somebody else is at the adapter, or none may be. The caller keeps the device alive.
  template <class Verb, class Outcome>
  bool call_at_once(Verb&& verb, Outcome& outcome) {
    bool due = false;
    if (!driver_ || !is_usable() || !driver_->try_with_adapter(verb, outcome, due)) return false;
    if (due) pump_transmit();
    return true;
  }

  // The same at a time that the caller sets; for simulation only.
  template <class Verb>
  auto call_at(std::uint64_t now_ns, Verb&& verb) {
    return call([&](Adapter& adapter, std::uint64_t) {
      using Outcome = decltype(verb(adapter, now_ns));
      if (driver_) return Outcome(refuse(EINVAL, "now_ns", now_ns, "this device keeps real time"));
      simulated_->clock->now_ns = now_ns;
      return verb(adapter, now_ns);
    });
  }

  // EDEADLK, by the name of a call that waits for the adapter's work, if the caller is a predicate
  // or script that this work waits for.
  Status may_await_work(const char* call) const;

  // Names the device among those of the process.
  std::uint64_t identity() const { return reinterpret_cast<std::uintptr_t>(this); }

  // Polls a CQ; one that is empty makes progress first, again and again for `patience_ns`.
  Result<std::size_t> poll(std::uint32_t cq, std::span<Completion> out,
                           std::uint64_t patience_ns = 0);
  // Polls without progress, and without letting the GIL go if nobody else is at the adapter.
  Result<std::size_t> poll_waiting(std::uint32_t cq, std::span<Completion> out);

  // See Driver::meet().
  void meet(const Gid& gid) {
    const GilReleased released;
    const InUse in_use(*this);
    if (driver_ && in_use.status().ok()) driver_->meet(gid);
  }

  // Arms a CQ: whoever did so sleeps next.
  Result<int> req_notify(std::uint32_t cq, std::uint32_t flags);

  // Waits until the channel has an event, is closed, or the time is over; or for another reason for
  // a short while, for the caller looks again in any case. False: it cannot be waited for here.
  bool wait_for(CompletionChannel& channel, std::uint64_t deadline_ns);

  Result<std::optional<AsyncEvent>> next_async_event();
  // A descriptor that is readable while there is an event; -1 in a simulation.
  int async_event_fd();

  SinkTable& completion_sinks() {
    return driver_ ? driver_->completion_sinks() : simulated_->sinks;
  }
  std::uint64_t clock_ns() const { return driver_ ? monotonic_ns() : simulated_->clock->now_ns; }
  bool is_simulated() const { return driver_ == nullptr; }

  // A simulation: what a fabric moves, and who is called when a poll finds nothing.
  const std::shared_ptr<SimulatedSide>& simulated() const { return simulated_; }
  const std::shared_ptr<GuardedAdapter>& guarded() const { return guarded_; }
  void set_idle(nanobind::object idle) { idle_ = std::move(idle); }

  // Callbacks of work requests under way. Belongs to who holds the GIL.
  CqeTable cqes;
  PolledBatches batches;
  // Grows with every post, so that callbacks know what was posted before them. Under the lock.
  std::uint64_t posted_so_far = 0;

  // Membership of the link; nothing to do in a simulation.
  DriverError join_group(const Gid& group);
  DriverError leave_group(const Gid& group);

  // Counters of the driver and its links; none in a simulation.
  Result<std::optional<DriverCounters>> driver_counters();

  // Waits for calls under way in other threads, then stops the driver. Idempotent. With the GIL
  // held, which it lets go: calls that keep the GIL need not be waited for.
  void close();

 private:
  // Counts a call, so that close() does not pull the driver from under it.
  class InUse {
   public:
    explicit InUse(Hca& hca) : hca_(hca) { hca_.calls_.fetch_add(1); }
    ~InUse() { hca_.calls_.fetch_sub(1); }
    InUse(const InUse&) = delete;
    InUse& operator=(const InUse&) = delete;
    Status status() const { return hca_.usable(); }

   private:
    Hca& hca_;
  };

  Status usable() const { return is_usable() ? Status::success() : why_unusable(); }
  bool is_usable() const {
    return fork_generation_ == softhca::fork_generation() && !closed_.load();
  }
  Status why_unusable() const;
  void pump_transmit();

  const std::uint64_t fork_generation_ = softhca::fork_generation();
  std::shared_ptr<GuardedAdapter> guarded_;
  std::shared_ptr<Driver> driver_;
  std::shared_ptr<SimulatedSide> simulated_;  // Without a driver.
  nanobind::object idle_;
  std::atomic<int> calls_{0};
  std::atomic<bool> closed_{false};
};

}  // namespace softhca
