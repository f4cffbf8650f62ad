#include "driver/fork_generation.hpp"

#include <pthread.h>

namespace softhca {

std::atomic<std::uint64_t> detail::forks{0};

namespace {

void on_fork_in_child() { detail::forks.fetch_add(1, std::memory_order_relaxed); }

[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, on_fork_in_child);

}  // namespace

}  // namespace softhca
