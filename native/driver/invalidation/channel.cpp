#include "driver/invalidation/channel.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "driver/invalidation/watched_region.hpp"

namespace softhca {
namespace {

constexpr std::size_t kPageBytes = 4096;

bool touch(const AddressRange& a, const AddressRange& b) {
  return a.start <= b.end && b.start <= a.end;
}

AddressRange range_of(const InvalidationEvent& event) {
  return {event.address, event.address + event.length};
}

void set_range(InvalidationEvent& event, const WatchedRegion& region, const AddressRange& range) {
  event.address = range.start;
  event.length = range.end - range.start;
  event.offset = range.start - region.range.start;
}

}  // namespace

InvalidationChannel::~InvalidationChannel() {
  if (page_ != nullptr) munmap(page_, kPageBytes);
}

Status InvalidationChannel::open() {
  const auto failed = [] {
    return refuse(errno, "invalidation_channel", 0, "no descriptor or memory is left");
  };
  readable_.reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!readable_.is_open()) return failed();
  page_fd_.reset(memfd_create("softhca-generation", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!page_fd_.is_open() || ftruncate(page_fd_.get(), kPageBytes) != 0) return failed();
  void* page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                    page_fd_.get(), 0);
  if (page == MAP_FAILED) return failed();
  page_ = new (page) GenerationPage{};
  // Who gets the descriptor can neither resize the page under us nor write to it.
  fcntl(page_fd_.get(), F_ADD_SEALS,
        F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
  return Status::success();
}

void InvalidationChannel::raise(WatchedRegion& region, ChangeKind kind, const AddressRange& range,
                                bool exact) {
  ++region.raised;
  if (shut_ || grow_unread(region, kind, range, exact)) return;
  UnreadEvent& unread = *free_;
  free_ = unread.next;
  unread = {};
  unread.event.cookie = region.cookie;
  unread.event.count = 1;
  unread.event.kind = kind;
  unread.event.exact = exact;
  set_range(unread.event, region, range);
  unread.region = &region;
  unread.previous = newest_;
  (newest_ != nullptr ? newest_->next : oldest_) = &unread;
  newest_ = &unread;
  region.unread[region.unread_count++] = &unread;
  if (++unread_ == 1) eventfd_write(readable_.get(), 1);
}

// A notice that continues an unread one of its kind becomes part of it; so does any notice when the
// region has no event left, whose range then says too much.
bool InvalidationChannel::grow_unread(WatchedRegion& region, ChangeKind kind,
                                      const AddressRange& range, bool exact) {
  UnreadEvent* grown = nullptr;
  for (std::size_t at = 0; at < region.unread_count; ++at) {
    UnreadEvent* unread = region.unread[at];
    if (unread->event.kind == kind && touch(range_of(unread->event), range)) grown = unread;
  }
  if (grown == nullptr) {
    if (region.unread_count < kEventsPerRegion) return false;
    grown = region.unread[region.unread_count - 1];
    exact = false;
  }
  const AddressRange before = range_of(grown->event);
  set_range(grown->event, region,
            {std::min(before.start, range.start), std::max(before.end, range.end)});
  grown->event.exact = grown->event.exact && exact;
  ++grown->event.count;
  return true;
}

std::size_t InvalidationChannel::take(std::span<InvalidationEvent> out) {
  std::size_t taken = 0;
  for (; taken < out.size() && oldest_ != nullptr; ++taken) {
    UnreadEvent& unread = *oldest_;
    out[taken] = unread.event;
    if (unread.region == nullptr) {
      --orphans_;
    } else {
      auto& mine = unread.region->unread;
      const auto end = mine.begin() + static_cast<std::ptrdiff_t>(unread.region->unread_count);
      std::copy(std::find(mine.begin(), end, &unread) + 1, end,
                std::find(mine.begin(), end, &unread));
      --unread.region->unread_count;
    }
    unlink(unread);
    release(unread);
  }
  if (taken > 0 && oldest_ == nullptr) clear_readable();
  return taken;
}

std::size_t InvalidationChannel::missing_events() const {
  const std::size_t needed = (regions_ + 1) * kEventsPerRegion + orphans_;
  return needed > events_ ? needed - events_ : 0;
}

void InvalidationChannel::bring(std::span<UnreadEvent> events) {
  for (UnreadEvent& unread : events) release(unread);
  events_ += events.size();
}

void InvalidationChannel::leave(WatchedRegion& region) {
  --regions_;
  for (std::size_t at = 0; at < region.unread_count; ++at) {
    UnreadEvent& unread = *region.unread[at];
    unread.region = nullptr;
    if (orphans_ < kKeptOrphans) {
      ++orphans_;
      continue;
    }
    lost_ += unread.event.count;
    unlink(unread);
    release(unread);
    if (oldest_ == nullptr) clear_readable();
  }
  region.unread_count = 0;
}

void InvalidationChannel::shut() {
  shut_ = true;
  while (oldest_ != nullptr) {
    UnreadEvent& unread = *oldest_;
    if (unread.region != nullptr) unread.region->unread_count = 0;
    unlink(unread);
    release(unread);
  }
  orphans_ = 0;
  eventfd_write(readable_.get(), 1);  // Whoever waits finds it shut.
}

void InvalidationChannel::unlink(UnreadEvent& unread) {
  (unread.previous != nullptr ? unread.previous->next : oldest_) = unread.next;
  (unread.next != nullptr ? unread.next->previous : newest_) = unread.previous;
  --unread_;
}

void InvalidationChannel::release(UnreadEvent& unread) {
  unread.next = free_;
  free_ = &unread;
}

void InvalidationChannel::clear_readable() {
  eventfd_t count = 0;
  eventfd_read(readable_.get(), &count);
}

}  // namespace softhca
