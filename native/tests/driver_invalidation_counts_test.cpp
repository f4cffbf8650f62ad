// What deregistration counts is what was raised, whoever reads and however late.
//
// A million rounds: SOFTHCA_TEST_ROUNDS=1000000 build/native/softhca_tests "invalidation counts"

#include <array>
#include <atomic>
#include <mutex>
#include <thread>
#include <utility>

#include "driver/invalidation/handles.hpp"
#include "tests/check.hpp"
#include "tests/invalidation_ground.hpp"
#include "vocabulary/random.hpp"

namespace softhca::testing {
namespace {

constexpr std::size_t kPages = 4;

std::unique_ptr<ChannelHandle> open_channel() {
  auto opened = ChannelHandle::open();
  CHECK(opened.ok());
  return std::move(opened.value);
}

// Watches a few pages and changes some of them, each of which is one notice; returns how many.
std::uint64_t one_round(ChannelHandle& channel, Random& random, std::uint64_t zone) {
  const std::uint64_t at = map_pages(kPages, zone);
  auto watch = WatchHandle::open(channel, at, kPages * kPage, random.next());
  CHECK(watch.ok());
  std::uint64_t changed = 0;
  for (std::size_t page = 0; page < kPages; ++page) {
    void* const place = pointer(at + page * kPage);
    const std::uint64_t before = channel.generation();
    switch (random.below(4)) {
      case 0:
        munmap(place, kPage);
        break;
      case 1:
        madvise(place, kPage, MADV_DONTNEED);
        break;
      case 2:
        map_pages(1, at + page * kPage);
        break;
      default:
        continue;
    }
    CHECK(channel.generation() != before);
    ++changed;
    CHECK_EQ(watch.value->raised(), changed);
  }
  CHECK_EQ(watch.value->close(), changed);
  munmap(pointer(at), kPages * kPage);
  return changed;
}

std::uint64_t take_all(ChannelHandle& channel) {
  std::array<InvalidationEvent, 256> events;
  std::uint64_t notices = 0;
  for (std::size_t count; (count = channel.take(events).value) > 0;) {
    for (std::size_t at = 0; at < count; ++at) notices += events[at].count;
  }
  return notices;
}

TEST("invalidation counts: a reader that is slow") {
  const auto channel = open_channel();
  std::atomic<bool> done{false};
  std::uint64_t read = 0;
  std::thread reader([&] {
    std::array<InvalidationEvent, 1> event;
    while (!done.load()) {
      if (channel->take(event).value == 1) read += event[0].count;
      std::this_thread::yield();
    }
  });
  Random random(seed());
  std::uint64_t raised = 0;
  for (std::size_t round = 0; round < rounds(2000); ++round) {
    raised += one_round(*channel, random, zone_of(10));
  }
  done = true;
  reader.join();
  read += take_all(*channel);
  CHECK_EQ(read + channel->lost().value, raised);
}

TEST("invalidation counts: a reader that is absent") {
  const auto channel = open_channel();
  Random random(seed());
  std::uint64_t raised = 0;
  for (std::size_t round = 0; round < rounds(2000); ++round) {
    raised += one_round(*channel, random, zone_of(11));
  }
  // What was kept for whoever comes late, and what was too much.
  const std::uint64_t lost = channel->lost().value;
  CHECK_EQ(take_all(*channel) + lost, raised);
}

TEST("invalidation counts: a reader that closes the channel") {
  auto channel = open_channel();
  std::atomic<bool> done{false};
  std::mutex changing;
  bool is_shut = false;
  std::thread closer([&] {
    while (!done.load()) {
      std::this_thread::yield();
      const std::lock_guard lock(changing);
      channel->shut();
      is_shut = true;
    }
  });
  Random random(seed());
  for (std::size_t round = 0; round < rounds(2000); ++round) {
    // Some regions are watched while their channel closes, the next round has another one.
    const std::uint64_t at = map_pages(2, zone_of(12));
    auto watch = WatchHandle::open(*channel, at, 2 * kPage, round);
    if (watch.ok()) {
      munmap(pointer(at), kPage);
      std::this_thread::yield();
      munmap(pointer(at + kPage), kPage);
      CHECK_EQ(watch.value->close(), 2u);
    } else {
      CHECK_EQ(watch.status.error, EINVAL);
    }
    munmap(pointer(at), 2 * kPage);
    const std::lock_guard lock(changing);
    if (is_shut) channel = open_channel();
    is_shut = false;
  }
  done = true;
  closer.join();
}

}  // namespace
}  // namespace softhca::testing
