#include "uabi/lookout.hpp"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace softhca {
namespace {

constexpr std::uint64_t kLeastNs = 10'000;

}  // namespace

void Lookout::found(std::uint64_t now_ns) {
  since_ns_ = now_ns;
  if (was_free_) checked_ns_ = 0;
  displaces_caller_ = std::exchange(was_woken_, false);
}

bool Lookout::goes_on(std::uint64_t now_ns) {
  if (limit_ns_ == 0 || now_ns - since_ns_ >= limit_ns_) return false;
  if (displaces_caller_ && now_ns - since_ns_ < kReplyNs) return true;
  const std::uint64_t pause_ns = was_free_ ? kCheckNs : kCheckWantedNs;
  if (checked_ns_ != 0 && now_ns - checked_ns_ < pause_ns) return was_free_;
  checked_ns_ = now_ns;
  was_free_ = is_free_();
  return was_free_;
}

void Lookout::woken(std::uint64_t now_ns) {
  was_woken_ = true;
  if (now_ns - since_ns_ <= most_ns_) {
    limit_ns_ = std::min(most_ns_, std::max(kLeastNs, 2 * limit_ns_));
  } else {
    limit_ns_ = limit_ns_ < 2 * kLeastNs ? 0 : limit_ns_ / 2;
  }
}

bool processor_is_free() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  // "0.20 0.18 0.12 1/80 11206": the fourth field begins with how many run or want to.
  thread_local const FileDescriptor load(open("/proc/loadavg", O_RDONLY | O_CLOEXEC));
  char text[64] = {};
  int running = 0;
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 &&
         pread(load.get(), text, sizeof text - 1, 0) > 0 &&
         std::sscanf(text, "%*s %*s %*s %d/", &running) == 1 && running <= CPU_COUNT(&allowed);
}

}  // namespace softhca
