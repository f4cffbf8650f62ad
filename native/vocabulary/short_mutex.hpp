// A mutex for sections that are left again within a microsecond or so, and entered for each
// message: free, it costs one atomic operation to enter and one to leave.
#pragma once

#include <atomic>
#include <cstdint>

namespace softhca {

// Lockable, as the standard library has it.
class ShortMutex {
 public:
  ShortMutex() = default;
  ShortMutex(const ShortMutex&) = delete;
  ShortMutex& operator=(const ShortMutex&) = delete;

  void lock() {
    if (!try_lock()) wait();
  }
  bool try_lock() {
    std::uint32_t free = kFree;
    return state_.compare_exchange_strong(free, kTaken, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }
  void unlock() {
    if (state_.exchange(kFree, std::memory_order_release) == kWaitedFor) state_.notify_one();
  }

 private:
  static constexpr std::uint32_t kFree = 0;
  static constexpr std::uint32_t kTaken = 1;
  static constexpr std::uint32_t kWaitedFor = 2;  // Taken, and somebody sleeps until it is not.
  // Looks before sleeping: most sections are left by then.
  static constexpr int kLooks = 100;

  void wait() {
    for (int looks = 0; looks < kLooks; ++looks) {
      if (state_.load(std::memory_order_relaxed) == kFree && try_lock()) return;
    }
    // Whoever has slept does not know whether others still do.
    while (state_.exchange(kWaitedFor, std::memory_order_acquire) != kFree) {
      state_.wait(kWaitedFor, std::memory_order_relaxed);
    }
  }

  std::atomic<std::uint32_t> state_{kFree};
};

}  // namespace softhca
