#include "driver/fork_generation.hpp"

#include <pthread.h>

#include <atomic>

namespace softhca {
namespace {

std::atomic<std::uint64_t> generation{0};

void on_fork_in_child() { generation.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

std::uint64_t fork_generation() {
  static const int registered = pthread_atfork(nullptr, nullptr, on_fork_in_child);
  static_cast<void>(registered);
  return generation.load(std::memory_order_relaxed);
}

}  // namespace softhca
