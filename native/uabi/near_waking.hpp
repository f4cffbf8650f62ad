// Where who is asked and who is answered are woken. The scheduler picks a processor that sleeps,
// and to wake that one up, once for the question and once for the answer, takes longer than all
// else of most calls. The kernel can wake both on the processor of who wakes them instead
// (SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP, Linux 6.6), which is about to become free.
//
// It is the wrong thing for tasks that ask often and poll in between, more of them than one: one
// that was answered may take the processor from us and keep it for milliseconds, and whoever asks
// next waits for us and is then woken there as well, next to an idle processor. A thread that was
// displaced by its own answer for so long leaves the waking to the scheduler for a while.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

namespace softhca {

class NearWaking {
 public:
  // `tell` has the kernel do so or not, and is false if it does not know how.
  explicit NearWaking(std::function<bool(bool on)> tell) : tell_(std::move(tell)) {}

  static constexpr std::uint64_t kDisplacedNs = 1'000'000;
  static constexpr std::uint64_t kPauseNs = 1'000'000'000;

  // An answer was begun and given at these times, by any thread.
  void answered(std::uint64_t since_ns, std::uint64_t now_ns) {
    if (now_ns - since_ns >= kDisplacedNs) paused_until_ns_.store(now_ns + kPauseNs);
  }
  // Tells the kernel what is best now, by one thread. True: waking is near, and cheap.
  bool settle(std::uint64_t now_ns) {
    const bool wanted = known_ && now_ns >= paused_until_ns_.load(std::memory_order_relaxed);
    if (wanted == is_near_) return is_near_;
    known_ = tell_(wanted);
    is_near_ = known_ && wanted;
    return is_near_;
  }

 private:
  std::function<bool(bool on)> tell_;
  bool known_ = true;  // The kernel knows how, as far as we know.
  bool is_near_ = false;
  std::atomic<std::uint64_t> paused_until_ns_{0};
};

}  // namespace softhca
