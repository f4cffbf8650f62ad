// What the threads of the native side do by themselves of what programs ask for by a handle,
// without Python. Thread-safe.
#pragma once

#include <cerrno>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace softhca {

template <class... Arguments>
class HandleCalls {
 public:
  // Returns an errno, or 0.
  using Call = std::function<int(Arguments...)>;

  void add(std::uint64_t inode, std::uint32_t handle, Call call) {
    const std::lock_guard lock(mutex_);
    calls_[{inode, handle}] = std::make_shared<Call>(std::move(call));
  }
  void remove(std::uint64_t inode, std::uint32_t handle) {
    const std::lock_guard lock(mutex_);
    calls_.erase({inode, handle});
  }
  // EINVAL if there is no such handle, as of the kernel.
  int call(std::uint64_t inode, std::uint32_t handle, Arguments... arguments) const {
    std::shared_ptr<Call> call;
    {
      const std::lock_guard lock(mutex_);
      const auto found = calls_.find({inode, handle});
      if (found == calls_.end()) return EINVAL;
      call = found->second;
    }
    return (*call)(arguments...);
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::shared_ptr<Call>> calls_;
};

// Of queue pairs: there is something to send.
using DoorbellTable = HandleCalls<>;
// Of completion queues: the next completion is an event, or the next that is solicited.
using ArmTable = HandleCalls<bool>;

}  // namespace softhca
