// Who watches for a driver: looks at all that may happen, and sleeps on it. The driver's thread
// does while nobody else comes; a caller that waits for an event takes the watch over, since what
// it waits for then wakes one thread instead of two.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "link/file_descriptor.hpp"

namespace softhca {

// Thread-safe. Exactly one has the watch, or, for a moment, a caller that will be back.
class WatchDuty {
 public:
  // A caller that waits; its address is its name.
  struct Caller {};
  enum class Part : std::uint8_t {
    LEADS,    // It has the watch.
    ASKED,    // The thread has it, and has to be woken: it will hand it over.
    FOLLOWS,  // Somebody else has it, and keeps it.
  };

  // Returns errno.
  int open();
  // Forgets the descriptors, which somebody else has closed.
  void lose();
  void abandon();

  // --- callers
  Part begin(Caller& caller, std::uint64_t now_ns);
  // Whether the watch has been handed over to it.
  bool leads(Caller& caller);
  // Readable when it may have been.
  int handed_fd();
  // Readable once this is closed.
  int closed_fd();
  // It waits no longer. `more`: there is something to do besides, which shall not wait for it.
  void end(Caller& caller, bool more, std::uint64_t now_ns);
  bool is_waited_on();
  // Readable when the thread is to look whether the watch is its again.
  int timer_fd();
  // A caller had the watch last, and is expected back.
  bool is_away() const { return holder_.load(std::memory_order_relaxed) == Holder::AWAY; }

  // --- the thread
  // Hands the watch over if a caller has asked for it.
  void heed() {
    if (wants_.load() != nullptr) hand_over();
  }
  bool is_threads() const { return holder_.load() == Holder::THREAD; }
  // Sleeps until the watch is the thread's again, or may be: true if it is.
  bool rest();
  // Nobody else is to have the watch from now on; wakes the thread, and callers that asked.
  void close();
  bool is_closed() const { return is_closed_.load(); }

 private:
  enum class Holder : std::uint8_t { THREAD, CALLER, AWAY };

  void hand_over();
  void take_back();
  void wake_thread_after(std::uint64_t wait_ns);

  std::mutex mutex_;
  std::atomic<Holder> holder_{Holder::THREAD};
  std::atomic<Caller*> wants_{nullptr};  // It has asked for the watch.
  std::atomic<bool> is_closed_{false};
  Caller* leader_ = nullptr;  // While a caller has it.
  int waiting_ = 0;
  bool timer_runs_ = false;
  std::uint64_t left_ns_ = 0;        // The last leader left then.
  std::uint64_t patience_ns_ = 0;    // How long the thread gives a leader to come back.
  std::uint64_t not_before_ns_ = 0;  // Until then nobody takes the watch from the thread.
  FileDescriptor handed_;
  FileDescriptor ended_;
  FileDescriptor timer_;  // Wakes the thread.
};

}  // namespace softhca
