// What owners of channels and watched regions hold; harmless in a child of fork(), where the
// watcher behind them does not exist.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "driver/fork_generation.hpp"
#include "driver/invalidation/watcher.hpp"

namespace softhca {

class ChannelHandle {
 public:
  static Result<std::unique_ptr<ChannelHandle>> open();
  ~ChannelHandle() { shut(); }
  ChannelHandle(const ChannelHandle&) = delete;
  ChannelHandle& operator=(const ChannelHandle&) = delete;

  int fd() const { return channel_->fd(); }
  int generation_fd() const { return channel_->generation_fd(); }
  std::uint64_t generation() const { return channel_->generation(); }
  // Takes the oldest events without waiting; the value says how many.
  Result<std::size_t> take(std::span<InvalidationEvent> out);
  Result<std::uint64_t> lost();
  // Idempotent; regions of the channel stay watched.
  void shut();

 private:
  friend class WatchHandle;
  ChannelHandle(Watcher& watcher, std::shared_ptr<InvalidationChannel> channel)
      : watcher_(watcher), channel_(std::move(channel)) {}

  bool inherited() const { return fork_generation_ != softhca::fork_generation(); }
  Status usable() const;

  Watcher& watcher_;
  std::shared_ptr<InvalidationChannel> channel_;
  const std::uint64_t fork_generation_ = softhca::fork_generation();
};

class WatchHandle {
 public:
  // Watches memory for a region that is about to be registered.
  static Result<std::unique_ptr<WatchHandle>> open(ChannelHandle& channel, std::uint64_t address,
                                                   std::uint64_t length, std::uint64_t cookie);
  ~WatchHandle() { close(); }
  WatchHandle(const WatchHandle&) = delete;
  WatchHandle& operator=(const WatchHandle&) = delete;

  // For Adapter::reg_watched_mr(). The region must be deregistered before the handle is closed.
  std::shared_ptr<const WatchedRange> range() const { return region_; }
  // Notices that were raised until now, or until it was closed, which another thread may do.
  std::uint64_t raised() const;
  // Stops watching. Idempotent. Returns the number of notices that were raised.
  std::uint64_t close();

 private:
  WatchHandle(Watcher& watcher, std::shared_ptr<WatchedRegion> region)
      : watcher_(watcher), region_(std::move(region)) {}

  bool inherited() const { return fork_generation_ != softhca::fork_generation(); }

  Watcher& watcher_;
  const std::shared_ptr<WatchedRegion> region_;
  std::atomic<bool> is_closed_{false};
  const std::uint64_t fork_generation_ = softhca::fork_generation();
};

}  // namespace softhca
