// Notices of real changes to real mappings (decision 8).

#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "driver/invalidation/handles.hpp"
#include "tests/check.hpp"
#include "tests/invalidation_ground.hpp"
#include "vocabulary/random.hpp"

namespace softhca::testing {
namespace {

struct Fixture {
  std::unique_ptr<ChannelHandle> channel;

  Fixture() {
    auto opened = ChannelHandle::open();
    CHECK_EQ(opened.status.error, 0);
    channel = std::move(opened.value);
  }
  std::unique_ptr<WatchHandle> watch(std::uint64_t address, std::uint64_t length,
                                     std::uint64_t cookie = 1) {
    auto opened = WatchHandle::open(*channel, address, length, cookie);
    CHECK_EQ(opened.status.error, 0);
    return std::move(opened.value);
  }
  std::vector<InvalidationEvent> take() {
    std::vector<InvalidationEvent> events(64);
    events.resize(channel->take(events).value);
    return events;
  }
  bool readable(int patience_ms = 0) const {
    pollfd waited{channel->fd(), POLLIN, 0};
    return poll(&waited, 1, patience_ms) == 1;
  }
  // The generation has grown when a call that unmaps returns, and whoever takes notices then finds
  // its own; the descriptor follows a moment later, whoever is waiting there.
  bool becomes_readable() const { return readable(60'000); }
};

void check_event(const InvalidationEvent& event, ChangeKind kind, std::uint64_t offset,
                 std::uint64_t length, std::uint64_t count = 1) {
  CHECK(event.kind == kind);
  CHECK_EQ(event.offset, offset);
  CHECK_EQ(event.length, length);
  CHECK_EQ(event.count, count);
  CHECK(event.exact);
}

TEST("invalidation: an unmapping is told exactly, once, and before it returns") {
  Fixture f;
  const std::uint64_t at = map_pages(8);
  // Begins and ends within pages.
  auto watch = f.watch(at + 100, 4 * kPage, 0xcafe);
  CHECK(!f.readable());
  const std::uint64_t before = f.channel->generation();
  munmap(pointer(at), kPage);
  CHECK(f.channel->generation() != before);
  CHECK(f.becomes_readable());
  auto events = f.take();
  CHECK_EQ(events.size(), 1u);
  check_event(events[0], ChangeKind::UNMAP, 0, kPage - 100);
  CHECK_EQ(events[0].cookie, 0xcafeu);
  CHECK(!f.readable());

  // The whole mapping: what had gone before is not told again.
  munmap(pointer(at), 8 * kPage);
  events = f.take();
  CHECK_EQ(events.size(), 1u);
  check_event(events[0], ChangeKind::UNMAP, kPage - 100, 3 * kPage + 100);
  CHECK_EQ(watch->close(), 2u);
  CHECK_EQ(watch->close(), 2u);
}

TEST("invalidation: every way of changing a mapping") {
  Fixture f;
  const std::uint64_t at = map_pages(10);
  std::memset(pointer(at), 1, 10 * kPage);
  auto watch = f.watch(at, 8 * kPage);
  madvise(pointer(at), kPage, MADV_DONTNEED);
  check_event(f.take().at(0), ChangeKind::REMOVE, 0, kPage);
  madvise(pointer(at + kPage), kPage, MADV_FREE);
  check_event(f.take().at(0), ChangeKind::REMOVE, kPage, kPage);
  map_pages(1, at + 2 * kPage);
  check_event(f.take().at(0), ChangeKind::UNMAP, 2 * kPage, kPage);
  // A move also unmaps the old place, which is gone already.
  void* moved = mremap(pointer(at + 3 * kPage), kPage, 2 * kPage, MREMAP_MAYMOVE);
  auto events = f.take();
  CHECK_EQ(events.size(), 1u);
  check_event(events[0], ChangeKind::REMAP, 3 * kPage, kPage);
  mremap(pointer(at + 4 * kPage), 6 * kPage, 3 * kPage, 0);
  check_event(f.take().at(0), ChangeKind::UNMAP, 7 * kPage, kPage);
  munmap(moved, 2 * kPage);
  CHECK(f.take().empty());
  CHECK_EQ(watch->close(), 5u);
  munmap(pointer(at), 7 * kPage);
  CHECK(f.take().empty());
}

TEST("invalidation: notices in one piece become one while unread") {
  Fixture f;
  const std::uint64_t at = map_pages(32);
  auto watch = f.watch(at, 32 * kPage);
  for (const int page : {4, 5, 3}) munmap(pointer(at + page * kPage), kPage);
  madvise(pointer(at + 6 * kPage), kPage, MADV_DONTNEED);
  munmap(pointer(at + 9 * kPage), kPage);
  auto events = f.take();
  CHECK_EQ(events.size(), 3u);
  check_event(events[0], ChangeKind::UNMAP, 3 * kPage, 3 * kPage, 3);
  check_event(events[1], ChangeKind::REMOVE, 6 * kPage, kPage);
  check_event(events[2], ChangeKind::UNMAP, 9 * kPage, kPage);

  // More pieces than a region has events for: the last grows over all of them.
  for (int page = 12; page < 32; page += 2) munmap(pointer(at + page * kPage), kPage);
  events = f.take();
  CHECK_EQ(events.size(), InvalidationChannel::kEventsPerRegion);
  CHECK(!events.back().exact);
  CHECK_EQ(events.back().count, 3u);
  CHECK_EQ(events.back().offset + events.back().length, 31 * kPage);
  CHECK_EQ(watch->close(), 15u);
  munmap(pointer(at), 32 * kPage);
}

TEST("invalidation: pages stay watched until the last region on them goes") {
  Fixture f;
  const std::uint64_t at = map_pages(8);
  auto left = f.watch(at, 4 * kPage, 1);
  auto right = f.watch(at + 2 * kPage, 4 * kPage, 2);
  auto same_page = f.watch(at + 100, 50, 3);
  CHECK_EQ(left->close(), 0u);
  munmap(pointer(at), kPage);
  munmap(pointer(at + 3 * kPage), kPage);
  auto events = f.take();
  CHECK_EQ(events.size(), 2u);
  CHECK_EQ(events[0].cookie, 3u);
  check_event(events[0], ChangeKind::UNMAP, 0, 50);
  CHECK_EQ(events[1].cookie, 2u);
  check_event(events[1], ChangeKind::UNMAP, kPage, kPage);
  CHECK_EQ(right->close(), 1u);
  CHECK_EQ(same_page->close(), 1u);
  munmap(pointer(at), 8 * kPage);
}

TEST("invalidation: an access fails where it is gone, whatever is there now") {
  Fixture f;
  const std::uint64_t at = map_pages(2);
  auto watch = f.watch(at, 2 * kPage);
  const auto access = [&](std::uint64_t offset, std::uint64_t length) {
    return move_present(watch->range().get(), at + offset, length, [] { return true; });
  };
  CHECK(access(0, 2 * kPage));
  map_pages(1, at + kPage);
  CHECK(access(0, kPage));
  CHECK(!access(0, kPage + 1));
  CHECK(!access(2 * kPage - 1, 1));
  CHECK(access(2 * kPage, 0));
  watch = f.watch(at, 2 * kPage);
  CHECK(access(0, 2 * kPage));
  watch->close();
  munmap(pointer(at), 2 * kPage);
}

TEST("invalidation: refusals") {
  Fixture f;
  const std::uint64_t at = map_pages(1);
  munmap(pointer(at), kPage);
  CHECK_EQ(WatchHandle::open(*f.channel, at, kPage, 0).status.error, EFAULT);
  CHECK_EQ(WatchHandle::open(*f.channel, ~std::uint64_t{0} - 10, 5, 0).status.error, EINVAL);
  CHECK_EQ(f.watch(at, 0)->close(), 0u);
  f.channel->shut();
  f.channel->shut();
  CHECK_EQ(WatchHandle::open(*f.channel, at, 0, 0).status.error, EINVAL);
}

TEST("invalidation: a channel may be shut before its regions, which go on counting") {
  Fixture f;
  const std::uint64_t at = map_pages(3);
  auto watch = f.watch(at, 3 * kPage);
  munmap(pointer(at), kPage);
  f.channel->shut();
  CHECK(f.readable());
  munmap(pointer(at + kPage), kPage);
  CHECK(f.take().empty());
  f.channel.reset();
  CHECK_EQ(watch->close(), 2u);
  munmap(pointer(at), 3 * kPage);
}

// Accesses, changes of mappings, registrations and readers at once, each from its own threads: the
// sum of what was read and lost is the sum of what deregistrations said, and an access that was let
// in through a registration finds that registration's bytes.
TEST("invalidation: threads map, watch, access and unmap") {
  Fixture f;
  constexpr int kThreads = 4;
  constexpr int kRounds = 400;
  std::atomic<std::uint64_t> raised{0};
  std::atomic<std::uint64_t> read{0};
  std::atomic<bool> done{false};
  std::thread reader([&] {
    for (bool last = false; !last;) {
      last = done.load();
      for (const InvalidationEvent& event : f.take()) read += event.count;
      std::this_thread::yield();
    }
  });
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      Random random(seed() + static_cast<std::uint64_t>(thread));
      for (int round = 0; round < kRounds; ++round) {
        const std::uint64_t at = map_pages(4, zone_of(static_cast<std::size_t>(thread)));
        auto watch = f.watch(at, 4 * kPage, random.next());
        std::shared_ptr<const WatchedRange> range = watch->range();
        for (int step = 0; step < 4; ++step) {
          const std::uint64_t page = at + random.below(4) * kPage;
          switch (random.below(3)) {
            case 0:
              munmap(pointer(page), kPage);
              CHECK(!move_present(range.get(), page, 1, [] { return true; }));
              break;
            case 1:
              madvise(pointer(page), kPage, MADV_DONTNEED);
              break;
            default:
              move_present(range.get(), page, 1, [] { return true; });
          }
        }
        raised += watch->close();
        munmap(pointer(at), 4 * kPage);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  done = true;
  reader.join();
  for (auto events = f.take(); !events.empty(); events = f.take()) {
    for (const InvalidationEvent& event : events) read += event.count;
  }
  CHECK_EQ(read.load() + f.channel->lost().value, raised.load());
  CHECK(raised.load() > 0);
}

// As soon as an address is free, another thread maps it and watches what it has mapped. The watcher
// may not have heard by then that something else was there before, and went.
TEST("invalidation: a mapping is not told of the end of the one before it") {
  Fixture f;
  constexpr int kThreads = 3;
  constexpr int kRounds = 400;
  const std::uint64_t at = zone_of(20);
  const auto map = [at] {
    return mmap(pointer(at), kPage, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != MAP_FAILED;
  };
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        while (!map()) std::this_thread::yield();
        auto watch = f.watch(at, kPage);
        for (int look = 0; look < 20; ++look) {
          CHECK_EQ(watch->raised(), 0u);
          std::this_thread::yield();
        }
        CHECK(move_present(watch->range().get(), at, kPage, [] { return true; }));
        munmap(pointer(at), kPage);
        CHECK_EQ(watch->close(), 1u);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST("invalidation: notices are asked for while the watch closes") {
  Fixture f;
  for (std::size_t round = 0; round < rounds(1000); ++round) {
    const std::uint64_t at = map_pages(1, zone_of(21));
    auto watch = f.watch(at, kPage);
    munmap(pointer(at), kPage);
    std::atomic<bool> asks{false};
    std::thread other([&] {
      for (int ask = 0; ask < 50; ++ask) {
        CHECK_EQ(watch->raised(), 1u);
        asks = true;
      }
    });
    while (!asks) std::this_thread::yield();
    CHECK_EQ(watch->close(), 1u);
    other.join();
  }
}

TEST("invalidation: a thousand regions on one channel") {
  Fixture f;
  constexpr std::size_t kRegions = 1000;
  const std::uint64_t at = map_pages(2 * kRegions);
  std::vector<std::unique_ptr<WatchHandle>> watches;
  for (std::size_t region = 0; region < kRegions; ++region) {
    watches.push_back(f.watch(at + 2 * region * kPage, kPage, region));
  }
  munmap(pointer(at + 2 * 700 * kPage), kPage);
  const auto one = f.take();
  CHECK_EQ(one.size(), 1u);
  CHECK_EQ(one[0].cookie, 700u);
  munmap(pointer(at), 2 * kRegions * kPage);
  std::vector<bool> seen(kRegions, false);
  for (auto events = f.take(); !events.empty(); events = f.take()) {
    for (const InvalidationEvent& event : events) {
      CHECK(!seen[event.cookie]);
      seen[event.cookie] = true;
    }
  }
  for (std::size_t region = 0; region < kRegions; ++region) CHECK_EQ(seen[region], region != 700);
  for (const auto& watch : watches) CHECK_EQ(watch->close(), 1u);
}

TEST("invalidation: a child of fork has none of it, and may begin afresh") {
  Fixture f;
  const std::uint64_t at = map_pages(2);
  auto watch = f.watch(at, 2 * kPage);
  const pid_t child = fork();
  if (child == 0) {
    munmap(pointer(at), kPage);
    const bool inherited = f.channel->take({}).status.error == EIO && watch->close() == 0;
    auto own = ChannelHandle::open();
    bool works = own.ok();
    if (works) {
      auto mine = WatchHandle::open(*own.value, at + kPage, kPage, 5);
      works = mine.ok();
      munmap(pointer(at + kPage), kPage);
      works = works && mine.value->close() == 1;
    }
    _exit(inherited && works ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK_EQ(status, 0);
  CHECK(f.take().empty());
  munmap(pointer(at), kPage);
  CHECK_EQ(f.take().size(), 1u);
  CHECK_EQ(watch->close(), 1u);
  munmap(pointer(at), 2 * kPage);
}

}  // namespace
}  // namespace softhca::testing
