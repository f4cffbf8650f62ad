#include "neighbour/fair_share.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <bit>

namespace softhca {
namespace {

// Of the descriptors one in so many is left.
constexpr std::uint64_t kDescriptorsLeft = 4;
// Of the addresses one in so many may be taken.
constexpr std::uint64_t kAddressesTaken = 16;

std::atomic<std::uint64_t> taken{0};

std::uint64_t limit_of(auto which) {
  rlimit limit{};
  return getrlimit(which, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

// The stack lies at the upper end of them.
std::uint64_t addresses() {
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  return std::min<std::uint64_t>(std::bit_ceil(here), limit_of(RLIMIT_AS));
}

}  // namespace

bool leaves_descriptors(int fd) {
  const std::uint64_t limit = limit_of(RLIMIT_NOFILE);
  return static_cast<std::uint64_t>(fd) < limit - limit / kDescriptorsLeft;
}

bool take_addresses(std::uint64_t bytes) {
  const std::uint64_t most = addresses() / kAddressesTaken;
  std::uint64_t before = taken.load(std::memory_order_relaxed);
  do {
    if (before > most || bytes > most - before) return false;
  } while (!taken.compare_exchange_weak(before, before + bytes, std::memory_order_relaxed));
  return true;
}

void give_addresses_back(std::uint64_t bytes) { taken.fetch_sub(bytes, std::memory_order_relaxed); }

}  // namespace softhca
