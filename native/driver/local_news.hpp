// When something was last heard of neighbours: how long the thread stays awake for the next of it.
#pragma once

#include <atomic>
#include <cstdint>

namespace softhca {

class LocalNews {
 public:
  // With the adapter locked: somebody has looked. `lends`: payloads that were left in place are
  // under way to neighbours.
  void looked(bool fetched, bool lends) {
    // The last one that was fetched is news as well: who had it goes on now, however long it took.
    const bool given_back = lends_.exchange(lends, std::memory_order_relaxed) && !lends;
    if (fetched || given_back) is_new_.store(true, std::memory_order_relaxed);
  }
  bool lends() const { return lends_.load(std::memory_order_relaxed); }

  // For one thread: how old the last news are.
  std::uint64_t age_ns(std::uint64_t now_ns) {
    if (is_new_.exchange(false, std::memory_order_relaxed)) last_ns_ = now_ns;
    return now_ns - last_ns_;
  }

 private:
  std::atomic<bool> is_new_{false};
  std::atomic<bool> lends_{false};
  std::uint64_t last_ns_ = 0;
};

}  // namespace softhca
