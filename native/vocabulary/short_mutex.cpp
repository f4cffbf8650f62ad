#include "vocabulary/short_mutex.hpp"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <linux/time_types.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

namespace softhca {
namespace {

// Looks before sleeping: most sections are left by then.
constexpr int kLooks = 64;
// Where there are no barriers, who sleeps looks again after so long.
constexpr __kernel_old_timespec kNap{.tv_sec = 0, .tv_nsec = 1'000'000};

// Some tens of nanoseconds in which the line is left to the processor that has the mutex.
void breathe() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

bool membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0) == 0; }

// Every other thread of the process has passed a barrier. False: the kernel cannot do it. What it
// takes is asked of the kernel (EPERM) and not kept in a static object: registering takes
// milliseconds, and a child of fork() would wait for ever for the thread that was at it.
bool barrier_for_threads() {
  if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) return true;
  return errno == EPERM && membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) &&
         membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

}  // namespace

void ShortMutex::wait() {
  for (int looks = 0; looks < kLooks; ++looks) {
    if (state_.load(std::memory_order_relaxed) == kFree && try_lock()) return;
    breathe();
  }
  sleep();
}

void ShortMutex::sleep() {
  static_assert(sizeof waited_for_ == sizeof(std::uint32_t));
  for (;;) {
    waited_for_.store(1);
    const bool is_seen = barrier_for_threads();
    if (try_lock()) return;
    // Returns at once if somebody has woken us since.
    syscall(SYS_futex, &waited_for_, FUTEX_WAIT_PRIVATE, 1, is_seen ? nullptr : &kNap, nullptr, 0);
  }
}

void ShortMutex::wake() {
  waited_for_.store(0);
  syscall(SYS_futex, &waited_for_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace softhca
