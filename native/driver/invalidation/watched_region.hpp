// A region with notices: what the watcher keeps of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "driver/invalidation/channel.hpp"
#include "memory/watched_range.hpp"

namespace softhca {

// `gone` and what follows it are under the watcher's notice lock; the rest never changes.
struct WatchedRegion final : WatchedRange {
  AddressRange range;
  AddressRange pages;  // `range`, widened to whole pages.
  std::uint64_t cookie = 0;
  std::shared_ptr<InvalidationChannel> channel;

  std::uint64_t raised = 0;  // Notices, read or not.
  std::array<UnreadEvent*, InvalidationChannel::kEventsPerRegion> unread{};
  std::size_t unread_count = 0;
};

}  // namespace softhca
