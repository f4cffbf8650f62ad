// Runs an adapter in real time. One native thread serves the peers while the owner does nothing;
// threads that post and poll do the work themselves.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "driver/clock.hpp"
#include "driver/completion_channel.hpp"
#include "driver/completion_sink.hpp"
#include "driver/deadline_timer.hpp"
#include "driver/engine.hpp"
#include "driver/event_bell.hpp"
#include "driver/fork_generation.hpp"
#include "driver/guarded_adapter.hpp"
#include "driver/local_news.hpp"
#include "driver/quiet_wire.hpp"
#include "driver/watch_duty.hpp"
#include "driver/yield_habit.hpp"
#include "link/address_monitor.hpp"
#include "link/fault_link.hpp"
#include "link/file_descriptor.hpp"
#include "link/scripted_link.hpp"
#include "link/udp_link.hpp"
#include "neighbour/neighbourhood.hpp"

namespace softhca {

// Why a driver could not start; the message is for the user.
using DriverError = LinkError;

struct DriverOptions {
  std::string capture_path;                   // Empty: no capture.
  FaultSettings faults;                       // Of the wire and of the loopback alike.
  std::shared_ptr<SharedFaults> fault_rules;  // The same; null: none.
  std::uint8_t max_mtu = 5;                   // Mtu code that the port's is never above.
};

struct DriverCounters {
  UdpCounters udp;
  std::uint64_t receive_overflows = 0;
  std::uint64_t captured_pkts = 0;
  FaultCounters sent_faults;
  FaultCounters received_faults;
  LinkError capture_failure;
};

// All methods are thread-safe, the destructor excepted.
class Driver {
 public:
  // `adapter` must have been made for `wire`: its address and its source ports (adapter_config()).
  Driver(std::shared_ptr<GuardedAdapter> adapter, std::unique_ptr<UdpLink> wire,
         DriverOptions options);
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // Opens the capture and starts the thread. Once.
  DriverError start();
  // Stops the thread, closes the sockets and completes the capture. Idempotent. In a child after
  // fork() it gives up the copies of the descriptors and leaves the parent alone.
  void close();

  // EIO: this process is a child of the one that opened the device. ENODEV: closed.
  Status usable() const { return is_usable() ? Status::success() : why_unusable(); }
  bool is_usable() const {
    return fork_generation_ == softhca::fork_generation() &&
           !closed_.load(std::memory_order_relaxed);
  }

  // Calls `function(Adapter&, now_ns)`, which returns a Status or a Result, with the adapter
  // locked, and sends what came of it. Instead of the time it gets kAskClock.
  template <class Function>
  auto with_adapter(Function&& function) -> decltype(function(std::declval<Adapter&>(), 0ull)) {
    if (!is_usable()) return why_unusable();
    std::unique_lock lock(guarded_->mutex);
    guarded_->adapter.begin_call();
    auto result = function(guarded_->adapter, kAskClock);
    const bool due = settle_locally();
    lock.unlock();
    if (due) pump(kTransmit);
    return result;
  }

  // The same for callers who cannot wait: false, and nothing was called, if somebody else is at the
  // adapter. What is left for the engine, if `due` says that there is anything, pump_transmit()
  // does.
  template <class Function, class Outcome>
  bool try_with_adapter(Function&& function, Outcome& outcome, bool& due) {
    const std::unique_lock lock(guarded_->mutex, std::try_to_lock);
    if (!lock.owns_lock()) return false;
    guarded_->adapter.begin_call();
    outcome = function(guarded_->adapter, kAskClock);
    due = settle_locally();
    return true;
  }
  void pump_transmit() { pump(kTransmit); }

  // Adapter::poll_cq() that makes progress itself when it finds nothing.
  Result<std::size_t> poll_cq(std::uint32_t cq, std::span<Completion> out);
  // The same for callers who cannot wait: false, and nothing was polled, if somebody else is at the
  // adapter. It looks to adapters of this host, but not to the network; `due` as above.
  bool try_poll_cq(std::uint32_t cq, std::span<Completion> out, Result<std::size_t>& polled,
                   bool& due);
  // What poll_cq() does when it has found nothing, and may_skip_wire() does not let it off.
  Result<std::size_t> poll_everything(std::uint32_t cq, std::span<Completion> out);
  // A poll that found nothing may leave the network for a later one: adapters of this host are all
  // that has been heard of lately.
  bool may_skip_wire();

  // Makes the acquaintance of the adapter with this address, if it is one of this host and user.
  // For a call that connects a queue pair to it; waits a little.
  void meet(const Gid& gid, int answer_ms = Neighbourhood::kAnswerMs);

  // The caller is a predicate or script of this adapter's faults, and the adapter waits for it.
  bool asks_caller() const {
    return options_.fault_rules != nullptr && options_.fault_rules->are_judged_here();
  }

  // A caller that polled goes to sleep: the thread takes over at once.
  void caller_sleeps();

  // Waits until the channel has an event, and does the thread's work meanwhile.
  enum class Waited { EVENT, TIMEOUT, INTERRUPTED, CLOSED };
  Waited wait_for(CompletionChannel& channel, std::uint64_t deadline_ns);
  // Nobody waits any longer. For who is about to close the driver.
  void end_waits();

  // Membership of the link; Adapter::attach_mcast() is called besides.
  DriverError join_group(const Gid& group);
  DriverError leave_group(const Gid& group);

  // Takes the oldest asynchronous event; false if there is none.
  Result<bool> next_event(AsyncEvent& event);
  // Readable while there is one, and for good once the driver is closed.
  int event_fd() const { return async_bell_.fd(); }
  // Where completion events of armed CQs go: what Adapter::attach_cq() takes is a number of this
  // table.
  SinkTable& completion_sinks() { return *completion_sinks_; }

  DriverCounters counters();

 private:
  enum Work : unsigned { kTransmit = 1, kReceive = 2 };
  enum class Outcome { IDLE, MORE, BUSY };
  enum class ThreadState { RUNNING, ASIDE, ASLEEP };

  Status why_unusable() const;
  DriverError open_descriptors();
  DriverError start_thread();
  void abandon();

  Result<std::size_t> poll_under_lock(std::uint32_t cq, std::span<Completion> out, bool& due);
  bool fetch_and_settle(bool& due);
  bool fetch_under_lock();
  // Under the lock: moves what stays on this host. True: the engine has something to do besides.
  bool settle_locally();
  // A poll has found nothing. `looks`: how many times it looks at the network.
  YieldHabit::Yield be_patient(int& looks);
  void pump(unsigned work);
  bool may_be_patient() const;
  // `neighbours`: what they have sent is fetched too.
  Outcome progress(unsigned work, int max_rounds, bool patient, bool neighbours = true);
  std::uint64_t arm();
  bool try_enter() { return !engine_busy_.exchange(true); }
  bool enter();
  void leave();
  template <class Function>
  auto with_engine(Function&& function) -> decltype(function());

  // A caller that has the watch: what wakes it besides, and ends its watch.
  struct Waiter {
    CompletionChannel& channel;
    std::uint64_t deadline_ns;
    bool interrupted = false;
    bool more = false;
  };
  void run();
  void watch(Waiter* waiter);
  std::optional<Waited> why_not_wait(const Waiter& waiter) const;
  void take_watch();
  void leave_watch(WatchDuty::Caller& caller, bool more);
  void wait_while_others_watch(Waiter& waiter, int handed_fd);
  void note_fruitful_poll();
  bool waits_for_neighbours();
  bool caller_is_polling();
  void glance();
  void step_aside(std::uint64_t wait_ns, Waiter* waiter);
  void sleep_until_ready(Waiter* waiter);
  bool neighbours_are_quiet();
  bool neighbours_were_here();
  bool wire_was_busy();
  void neighbours_see_us_awake();
  void heed_address();
  void heed_address_if(short revents);
  void follow_address(const AddressCondition& condition);
  void lose_descriptors();
  void kick();
  void clear_kick();

  const std::uint64_t fork_generation_;
  std::shared_ptr<GuardedAdapter> guarded_;
  DriverOptions options_;
  EventBell async_bell_;
  std::unique_ptr<SinkTable> completion_sinks_ = std::make_unique<SinkTable>();

  // What follows belongs to whoever holds engine_busy_. A flag, not a mutex: nobody waits for it,
  // work is left for its holder instead.
  std::atomic<bool> engine_busy_{false};
  std::atomic<unsigned> pending_{0};  // Work bits that the holder looks at after it has let go.
  UdpLink* udp_ = nullptr;
  FaultLink* faults_ = nullptr;  // Around the wire, if there are faults.
  std::unique_ptr<UdpLink> opened_wire_;
  std::unique_ptr<Engine> engine_;
  DeadlineTimer timer_;

  std::atomic<bool> closed_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint64_t> armed_ns_{0};  // When the engine is due at the latest.
  std::atomic<bool> work_left_{false};      // A caller stopped with work to do; the thread goes on.
  std::atomic<ThreadState> thread_state_{ThreadState::RUNNING};
  std::atomic<bool> holds_acks_{false};               // The engine does.
  std::atomic<std::uint64_t> impatient_until_ns_{0};  // No caller holds any until then.
  std::atomic<std::uint64_t> last_poll_ns_{0};        // Of those that found nothing.
  std::atomic<std::uint32_t> fruitful_polls_{0};      // The others; 0: none since a caller slept.
  // Times that one who polls has begun to fetch what neighbours have sent, and has done so: odd
  // while one is at it.
  std::atomic<std::uint32_t> caller_fetches_{0};
  bool polled_in_vain_ = false;  // The last poll found nothing; with the adapter locked.
  YieldHabit yields_;
  // Of the wire; they never change while the thread runs.
  int arrival_fd_ = -1;
  int ready_fd_ = -1;
  std::atomic<bool> wire_lost_{false};
  std::atomic<bool> descriptors_lost_{false};     // The driver's own as well.
  std::unique_ptr<Neighbourhood> neighbourhood_;  // Null: everything takes the network.
  QuietWire quiet_wire_;
  LocalNews local_news_;
  // Of whoever has the watch.
  std::uint32_t fruitful_polls_seen_ = 0;
  int short_sleeps_ = 0;            // Of those that the network ended, in a row.
  std::uint64_t wire_news_ns_ = 0;  // It last heard from the network then.
  bool lingers_ = false;            // It looks for packets, and nothing else is due.
  AddressMonitor address_monitor_;
  LocalAddress address_;
  AddressCondition address_condition_;  // As the adapter knows it.
  FileDescriptor kick_;
  std::unique_ptr<std::thread> thread_;
  // Behind what every call looks at.
  WatchDuty duty_;
  // Of whoever has the watch, too.
  std::uint64_t aside_ns_ = 0;
  unsigned left_alone_ = 0;
  bool lingering_ = false;
  unsigned rounds_ = 0;
};

}  // namespace softhca
