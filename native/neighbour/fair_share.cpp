#include "neighbour/fair_share.hpp"

#include <sys/resource.h>

#include <cstdint>

namespace softhca {
namespace {

// Of the descriptors one in so many is left.
constexpr std::uint64_t kDescriptorsLeft = 4;

std::uint64_t limit_of(auto which) {
  rlimit limit{};
  return getrlimit(which, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

}  // namespace

bool leaves_descriptors(int fd) {
  const std::uint64_t limit = limit_of(RLIMIT_NOFILE);
  return static_cast<std::uint64_t>(fd) < limit - limit / kDescriptorsLeft;
}

}  // namespace softhca
