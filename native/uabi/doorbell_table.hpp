// Whom a doorbell wakes: the listener's thread rings it by itself. Thread-safe.
#pragma once

#include <cerrno>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace softhca {

class DoorbellTable {
 public:
  // Returns the errno of the post, or 0.
  using Ring = std::function<int()>;

  void add(std::uint64_t inode, std::uint32_t qp_handle, Ring ring) {
    const std::lock_guard lock(mutex_);
    doorbells_[{inode, qp_handle}] = std::make_shared<Ring>(std::move(ring));
  }
  void remove(std::uint64_t inode, std::uint32_t qp_handle) {
    const std::lock_guard lock(mutex_);
    doorbells_.erase({inode, qp_handle});
  }
  // EINVAL if there is no such queue pair, as of the kernel.
  int ring(std::uint64_t inode, std::uint32_t qp_handle) const {
    std::shared_ptr<Ring> ring;
    {
      const std::lock_guard lock(mutex_);
      const auto found = doorbells_.find({inode, qp_handle});
      if (found == doorbells_.end()) return EINVAL;
      ring = found->second;
    }
    return (*ring)();
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::shared_ptr<Ring>> doorbells_;
};

}  // namespace softhca
