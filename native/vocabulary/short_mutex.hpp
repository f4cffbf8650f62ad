// A mutex for sections that are left again within a microsecond or so, and entered for each
// message: free, it costs one atomic operation to enter and none to leave.
//
// Who leaves stores that it is free, and then looks whether somebody sleeps; the processor may do
// the one before the other is seen. Who goes to sleep says so, has all threads of the process pass
// a barrier (membarrier(2)), and looks once more: either it finds the mutex free, or who leaves
// finds it sleeping. Who is woken says so again before it sleeps again: it may be long until it has
// a processor, and nobody shall wake it a second time meanwhile.
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
    state_.store(kFree, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (waited_for_.load(std::memory_order_relaxed) != 0) wake();
  }

 private:
  static constexpr std::uint32_t kFree = 0;
  static constexpr std::uint32_t kTaken = 1;

  void wait();
  void sleep();
  void wake();

  std::atomic<std::uint32_t> state_{kFree};
  std::atomic<std::uint32_t> waited_for_{0};  // What sleepers sleep on.
};

}  // namespace softhca
