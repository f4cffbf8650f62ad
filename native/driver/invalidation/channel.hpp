// Where notices of one reader gather: a queue, a descriptor that is readable while it holds any,
// and a page with a generation that other processes can map.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "driver/invalidation/userfault.hpp"
#include "link/file_descriptor.hpp"
#include "vocabulary/status.hpp"

namespace softhca {

// Unread notices of one region, of one kind and in one piece.
struct InvalidationEvent {
  std::uint64_t cookie = 0;
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint64_t offset = 0;  // Of the range in its region.
  std::uint64_t count = 0;   // Notices that it stands for.
  ChangeKind kind = ChangeKind::UNMAP;
  bool exact = true;  // False if the range covers more than what changed.
};

struct WatchedRegion;

struct UnreadEvent {
  InvalidationEvent event;
  WatchedRegion* region = nullptr;  // Null once it is deregistered.
  UnreadEvent* previous = nullptr;
  UnreadEvent* next = nullptr;  // In the queue, or among the free ones.
};

// What the page holds. Other processes map it read-only.
struct GenerationPage {
  std::atomic<std::uint64_t> generation;
};

// All methods but open() and the accessors are called with the watcher's notice lock held, and
// neither allocate nor free. The watcher alone makes one.
class InvalidationChannel {
 public:
  // Unread events that one region can have; and those of deregistered regions that are kept.
  static constexpr std::size_t kEventsPerRegion = 8;
  static constexpr std::size_t kKeptOrphans = 65536;

  InvalidationChannel() = default;
  ~InvalidationChannel();
  InvalidationChannel(const InvalidationChannel&) = delete;
  InvalidationChannel& operator=(const InvalidationChannel&) = delete;

  // Makes the descriptors and the page.
  Status open();
  int fd() const { return readable_.get(); }
  int generation_fd() const { return page_fd_.get(); }
  std::uint64_t generation() const { return page_->generation.load(std::memory_order_acquire); }

  void advance_generation() { page_->generation.fetch_add(1, std::memory_order_release); }
  // Queues a notice for `region`, or lets an unread one of it grow.
  void raise(WatchedRegion& region, ChangeKind kind, const AddressRange& range, bool exact);
  // Takes the oldest events; returns how many.
  std::size_t take(std::span<InvalidationEvent> out);
  std::size_t unread() const { return unread_; }
  // Notices that nobody will read: those of deregistered regions beyond kKeptOrphans.
  std::uint64_t lost() const { return lost_; }

  // A region joins; this many events must be brought for it first.
  std::size_t missing_events() const;
  void bring(std::span<UnreadEvent> events);
  void join() { ++regions_; }
  // A region leaves; its unread events stay readable.
  void leave(WatchedRegion& region);
  // Forgets what is unread, and queues nothing more. The descriptor stays readable.
  void shut();
  bool is_shut() const { return shut_; }

  // Owner of the events; under the watcher's registration lock.
  std::vector<std::unique_ptr<UnreadEvent[]>> blocks;
  // In the watcher's list, under the notice lock.
  InvalidationChannel* next_channel = nullptr;

 private:
  void unlink(UnreadEvent& unread);
  void release(UnreadEvent& unread);
  bool grow_unread(WatchedRegion& region, ChangeKind kind, const AddressRange& range, bool exact);
  void clear_readable();

  FileDescriptor readable_;
  FileDescriptor page_fd_;
  GenerationPage* page_ = nullptr;
  UnreadEvent* oldest_ = nullptr;
  UnreadEvent* newest_ = nullptr;
  UnreadEvent* free_ = nullptr;
  std::size_t unread_ = 0;
  std::size_t orphans_ = 0;
  std::size_t events_ = 0;
  std::size_t regions_ = 0;
  std::uint64_t lost_ = 0;
  bool shut_ = false;
};

}  // namespace softhca
