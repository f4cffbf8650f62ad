#include "driver/invalidation/watcher.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "driver/signals_blocked.hpp"
#include "vocabulary/page_bytes.hpp"

namespace softhca {
namespace {

std::mutex creation;
Watcher* current = nullptr;

// What huge pages may have, of x86-64 and of arm64, whose ordinary pages decide.
constexpr std::uint64_t kHugePageBytes[] = {64 << 10, 2 << 20, 32 << 20, 512 << 20, 1 << 30};

// Changes take some 20 microseconds, of a thread that waits for a processor some milliseconds.
constexpr int kYields = 50;
constexpr int kMostLooks = 1000;
constexpr std::chrono::microseconds kPause{50};

std::size_t class_of(const AddressRange& range) {
  return static_cast<std::size_t>(std::bit_width(range.end - range.start));
}

bool is_mapped(std::uint64_t page) {
  unsigned char resident = 0;
  return mincore(reinterpret_cast<void*>(page), page_bytes(), &resident) == 0;
}

Status no_such_memory(std::uint64_t address) {
  return refuse(EINVAL, "addr", address, "invalidation can only watch memory of this process");
}

}  // namespace

Result<Watcher*> Watcher::instance() {
  const std::lock_guard lock(creation);
  if (current != nullptr) return current;
  auto* const watcher = new Watcher;
  if (const Status status = watcher->start(); !status.ok()) {
    delete watcher;
    return status;
  }
  static const int registered = pthread_atfork(nullptr, nullptr, abandon_in_child);
  static_cast<void>(registered);
  current = watcher;
  return current;
}

// A child has the parent's descriptor, but neither its thread nor its notices; whatever lock the
// parent's threads held stays held. It starts afresh when it needs to.
void Watcher::abandon_in_child() {
  new (&creation) std::mutex;
  if (current != nullptr) current->userfault_ = Userfault();
  current = nullptr;
  access_gate().reset();
}

Status Watcher::start() {
  if (const Status status = userfault_.open(); !status.ok()) return status;
  const SignalsBlocked blocked;
  try {
    std::thread thread([this] { run(); });
    pthread_setname_np(thread.native_handle(), "softhca-watch");
    thread.detach();
  } catch (const std::system_error& failure) {
    return refuse(failure.code().value(), "invalidation", 0, "cannot start a thread");
  }
  return Status::success();
}

void Watcher::run() {
  std::array<MappingChange, Userfault::kMaxChanges> changes;
  for (;;) {
    pollfd ready{userfault_.fd(), POLLIN, 0};
    if (poll(&ready, 1, -1) < 0 || (ready.revents & POLLIN) == 0) {
      // Somebody closed our descriptor, with which the kernel has let everybody go.
      if ((ready.revents & POLLNVAL) != 0) return;
      continue;
    }
    const std::lock_guard lock(notices_);
    access_gate().close();
    for (InvalidationChannel* at = channels_; at != nullptr; at = at->next_channel) {
      at->advance_generation();
    }
    const std::size_t count = userfault_.read(changes);
    for (std::size_t at = 0; at < count; ++at) apply(changes[at]);
    access_gate().open();
  }
}

void Watcher::apply(const MappingChange& change) {
  for_near(change.range, [&](WatchedRegion& region) {
    region.gone.add(intersection(change.range, region.range),
                    [&](const AddressRange& part, bool exact) {
                      region.channel->raise(region, change.kind, part, exact);
                    });
  });
  if (change.moved_to == 0 || change.moved_to == change.range.start) return;
  // Without space to remember it, it stays watched in vain until it is unmapped.
  if (stray_count_ == kMaxStrays) return;
  strays_[stray_count_++] = {change.moved_to,
                             change.moved_to + (change.range.end - change.range.start)};
}

// Visits the regions whose pages may lie on `range`, and a few more.
template <class Visit>
void Watcher::for_near(const AddressRange& range, Visit visit) {
  const std::uint64_t beyond = huge_page_bytes_;
  for (std::uint64_t left = classes_; left != 0; left &= left - 1) {
    const int size_class = std::countr_zero(left);
    const Regions& regions = regions_[static_cast<std::size_t>(size_class)];
    const std::uint64_t reach = std::min(range.start, (std::uint64_t{1} << size_class) + beyond);
    for (auto at = regions.lower_bound(range.start - reach);
         at != regions.end() && at->first < range.end + beyond; ++at) {
      visit(*at->second);
    }
  }
}

Result<std::shared_ptr<InvalidationChannel>> Watcher::open_channel() {
  auto channel = std::make_shared<InvalidationChannel>();
  if (const Status status = channel->open(); !status.ok()) return status;
  const std::lock_guard registration(registration_);
  const std::lock_guard lock(notices_);
  channel->next_channel = channels_;
  channels_ = channel.get();
  return channel;
}

void Watcher::shut_channel(InvalidationChannel& channel) {
  const std::lock_guard registration(registration_);
  const std::lock_guard lock(notices_);
  if (channel.is_shut()) return;
  channel.shut();
  InvalidationChannel** link = &channels_;
  while (*link != &channel) link = &(*link)->next_channel;
  *link = channel.next_channel;
}

std::size_t Watcher::take(InvalidationChannel& channel, std::span<InvalidationEvent> out) {
  const std::lock_guard lock(notices_);
  return channel.take(out);
}

std::uint64_t Watcher::lost(InvalidationChannel& channel) {
  const std::lock_guard lock(notices_);
  return channel.lost();
}

Result<std::shared_ptr<WatchedRegion>> Watcher::add(std::shared_ptr<InvalidationChannel> channel,
                                                    std::uint64_t address, std::uint64_t length,
                                                    std::uint64_t cookie) {
  // No program has mappings in the upper half of the addresses.
  if (address >> 63 != 0 || length >> 63 != 0) return no_such_memory(address);
  auto region = std::make_shared<WatchedRegion>();
  region->range = {address, address + length};
  region->cookie = cookie;
  region->channel = std::move(channel);
  if (length > 0) {
    region->pages = pages_around(region->range, page_bytes());
    // Every other page may go.
    region->gone.reserve((region->pages.end - region->pages.start) / page_bytes() / 2 + 1);
  }
  await_changes();
  // A node of the map that is made before the locks are taken.
  Regions one;
  one.emplace(address, region.get());
  auto node = one.extract(one.begin());

  const std::lock_guard registration(registration_);
  bring_events(*region->channel);
  {
    const std::lock_guard lock(notices_);
    if (region->channel->is_shut()) {
      return refuse(EINVAL, "invalidation", 0, "is closed");
    }
    region->channel->join();
    const std::size_t size_class = class_of(region->range);
    regions_[size_class].insert(std::move(node));
    classes_ |= std::uint64_t{1} << size_class;
  }
  if (length > 0) {
    Status status = userfault_.watch(region->pages);
    if (status.error == EFAULT && is_mapped(region->pages.start) && watch_huge(*region)) {
      status = Status::success();
    }
    if (!status.ok()) {
      forget(*region);
      return status;
    }
  }
  unwatch_strays();
  return region;
}

// What is mapped at an address may be there because another thread has just unmapped what was there
// before, which is still to be told, and would be taken for news of what is there now.
void Watcher::await_changes() {
  const int most = never_settles_.load() ? 0 : kMostLooks;
  for (int look = 0; userfault_.is_changing(); ++look) {
    if (look >= most) {
      // Kernels until May 2026 never stop counting a move that failed half-way.
      never_settles_.store(true);
      return;
    }
    if (look < kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPause);
    }
  }
  never_settles_.store(false);
}

// In a mapping of huge pages only whole ones can be watched.
bool Watcher::watch_huge(WatchedRegion& region) {
  for (const std::uint64_t bytes : kHugePageBytes) {
    const AddressRange huge = pages_around(region.range, bytes);
    if (!userfault_.watch(huge).ok()) continue;
    const std::lock_guard lock(notices_);
    huge_page_bytes_ = std::max(huge_page_bytes_, bytes);
    region.pages = huge;
    return true;
  }
  return false;
}

// The events that a region may need are there before it is watched.
void Watcher::bring_events(InvalidationChannel& channel) {
  std::size_t missing = 0;
  {
    const std::lock_guard lock(notices_);
    missing = channel.missing_events();
  }
  if (missing == 0) return;
  // In growing blocks, so that registering thousands allocates a few times.
  const std::size_t count =
      std::max<std::size_t>(missing, 64 << std::min<std::size_t>(channel.blocks.size(), 6));
  channel.blocks.push_back(std::make_unique<UnreadEvent[]>(count));
  const std::span<UnreadEvent> events(channel.blocks.back().get(), count);
  const std::lock_guard lock(notices_);
  channel.bring(events);
}

// Takes the region out of all tables. Its node is freed after the lock is let go.
void Watcher::forget(WatchedRegion& region) {
  Regions::node_type node;
  const std::lock_guard lock(notices_);
  const std::size_t size_class = class_of(region.range);
  Regions& regions = regions_[size_class];
  auto [at, end] = regions.equal_range(region.range.start);
  while (at != end && at->second != &region) ++at;
  node = regions.extract(at);
  if (regions.empty()) classes_ &= ~(std::uint64_t{1} << size_class);
  region.channel->leave(region);
}

std::uint64_t Watcher::remove(WatchedRegion& region) {
  const std::lock_guard registration(registration_);
  forget(region);
  unwatch_unshared(region.pages);
  unwatch_strays();
  return region.raised;
}

std::uint64_t Watcher::raised(const WatchedRegion& region) {
  const std::lock_guard lock(notices_);
  return region.raised;
}

// Stops watching the pages that no other region lies on.
void Watcher::unwatch_unshared(const AddressRange& pages) {
  if (pages.empty()) return;
  std::vector<AddressRange> shared;
  for_near(pages, [&](const WatchedRegion& other) {
    const AddressRange both = intersection(other.pages, pages);
    if (!both.empty()) shared.push_back(both);
  });
  std::ranges::sort(shared, {}, &AddressRange::start);
  std::uint64_t from = pages.start;
  for (const AddressRange& part : shared) {
    if (part.start > from) userfault_.unwatch({from, part.start});
    from = std::max(from, part.end);
  }
  if (from < pages.end) userfault_.unwatch({from, pages.end});
}

void Watcher::unwatch_strays() {
  std::array<AddressRange, kMaxStrays> strays;
  std::size_t count = 0;
  {
    const std::lock_guard lock(notices_);
    if (stray_count_ == 0) return;
    strays = strays_;
    count = std::exchange(stray_count_, 0);
  }
  for (std::size_t at = 0; at < count; ++at) unwatch_unshared(strays[at]);
}

}  // namespace softhca
