// Watches mappings of this process and tells regions and channels when they change; one for the
// process. The order of things, and what the watching thread must not do, is decision 8.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "driver/invalidation/channel.hpp"
#include "driver/invalidation/userfault.hpp"
#include "driver/invalidation/watched_region.hpp"
#include "vocabulary/status.hpp"

namespace softhca {

class Watcher {
 public:
  // The watcher of this process; the first call makes it and starts its thread. EOPNOTSUPP where
  // the system has no notices. It is never destroyed: until the process ends, a thread may wait for
  // its event to be read.
  static Result<Watcher*> instance();

  Result<std::shared_ptr<InvalidationChannel>> open_channel();
  // Its regions stay watched and go on counting.
  void shut_channel(InvalidationChannel& channel);
  std::size_t take(InvalidationChannel& channel, std::span<InvalidationEvent> out);
  std::uint64_t lost(InvalidationChannel& channel);

  // Watches a range of this process's memory for a region.
  Result<std::shared_ptr<WatchedRegion>> add(std::shared_ptr<InvalidationChannel> channel,
                                             std::uint64_t address, std::uint64_t length,
                                             std::uint64_t cookie);
  // Stops, and returns how many notices were raised for the region. Accesses must have ended.
  std::uint64_t remove(WatchedRegion& region);
  std::uint64_t raised(const WatchedRegion& region);

  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

 private:
  // By the first byte of the region.
  using Regions = std::multimap<std::uint64_t, WatchedRegion*>;
  // Regions of a class are shorter than 2^class bytes, so that who looks for those that reach into
  // a range need not look far, however long others are.
  static constexpr std::size_t kClasses = 64;

  // Ranges that a mapping was moved to, watched although no region lies there.
  static constexpr std::size_t kMaxStrays = 64;

  Watcher() = default;
  ~Watcher() = default;

  Status start();
  void run();
  void apply(const MappingChange& change);
  void await_changes();
  bool watch_huge(WatchedRegion& region);
  void bring_events(InvalidationChannel& channel);
  void forget(WatchedRegion& region);
  void unwatch_unshared(const AddressRange& pages);
  void unwatch_strays();
  static void abandon_in_child();

  template <class Visit>
  void for_near(const AddressRange& range, Visit visit);

  Userfault userfault_;
  std::atomic<bool> never_settles_{false};

  // Held by whoever registers, deregisters, opens or shuts, around system calls too. Taken before
  // notices_, never by the watching thread.
  std::mutex registration_;
  // Under it nobody allocates, frees, unmaps or waits. The watching thread holds it from before it
  // lets a changing thread go until all notices are out.
  std::mutex notices_;

  // Changed with both locks held, read with either.
  std::array<Regions, kClasses> regions_;
  std::uint64_t classes_ = 0;  // A bit for each that has any.
  // By so much some region may reach beyond its own pages.
  std::uint64_t huge_page_bytes_ = 0;
  // What follows, and what is said of regions and channels there, is under notices_.
  InvalidationChannel* channels_ = nullptr;
  std::array<AddressRange, kMaxStrays> strays_{};
  std::size_t stray_count_ = 0;
};

}  // namespace softhca
