// Tells a process from the child that it forked.
#pragma once

#include <atomic>
#include <cstdint>

namespace softhca {

namespace detail {
extern std::atomic<std::uint64_t> forks;
}  // namespace detail

// Grows by one in every child of fork(): what was made under another number belongs to the parent.
// Costs one load; takes no lock.
inline std::uint64_t fork_generation() { return detail::forks.load(std::memory_order_relaxed); }

}  // namespace softhca
