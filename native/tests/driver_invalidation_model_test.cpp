// Regions of all sizes, one over the other, whose mappings change at random: what is told is what a
// map of every byte says.
//
// SOFTHCA_TEST_ROUNDS=1000000 build/native/softhca_tests "invalidation model"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "driver/invalidation/handles.hpp"
#include "tests/check.hpp"
#include "tests/invalidation_ground.hpp"
#include "vocabulary/random.hpp"

namespace softhca::testing {
namespace {

constexpr std::size_t kPages = 64;
constexpr std::size_t kRegions = 24;
const std::uint64_t kFirst = zone_of(40);

// A watched region, and which of its pages are gone.
struct Subject {
  std::unique_ptr<WatchHandle> watch;
  std::uint64_t start = 0;  // Bytes from kFirst.
  std::uint64_t length = 0;
  std::array<bool, kPages> gone{};
  std::uint64_t expected_bytes = 0;  // Of the change under way.
  std::uint64_t told_bytes = 0;
  std::uint64_t told_notices = 0;
};

class Ground {
 public:
  explicit Ground(std::uint64_t own_seed) : random_(own_seed), subjects_(kRegions) {
    auto opened = ChannelHandle::open();
    CHECK(opened.ok());
    channel_ = std::move(opened.value);
    map_pages(kPages, kFirst);
  }
  ~Ground() { munmap(pointer(kFirst), kPages * kPage); }

  void one_round() {
    const std::size_t chosen = random_.below(kRegions);
    if (random_.below(3) == 0) {
      renew(chosen);
    } else {
      change();
    }
  }

 private:
  void renew(std::size_t number) {
    Subject& subject = subjects_[number];
    if (subject.watch != nullptr) CHECK_EQ(subject.watch->close(), subject.told_notices);
    subject = {};
    if (random_.below(4) == 0) return;
    // As many short ones as long ones.
    const std::uint64_t most = std::uint64_t{1} << random_.below(19);
    subject.start = random_.below(kPages * kPage);
    subject.length = std::min(random_.below(most) + 1, kPages * kPage - subject.start);
    auto opened = WatchHandle::open(*channel_, kFirst + subject.start, subject.length, number);
    CHECK(opened.ok());
    subject.watch = std::move(opened.value);
  }

  void change() {
    const std::uint64_t first = random_.below(kPages);
    const std::uint64_t pages = std::min(random_.below(9) + 1, kPages - first);
    for (Subject& subject : subjects_) {
      subject.expected_bytes = 0;
      for (std::uint64_t page = first; page < first + pages; ++page) expect(subject, page);
    }
    if (random_.below(2) == 0) {
      madvise(pointer(kFirst + first * kPage), pages * kPage, MADV_DONTNEED);
    } else {
      map_pages(pages, kFirst + first * kPage);
    }
    check_told(first, pages);
  }

  static void expect(Subject& subject, std::uint64_t page) {
    if (subject.watch == nullptr || subject.gone[page]) return;
    const std::uint64_t start = std::max(subject.start, page * kPage);
    const std::uint64_t end = std::min(subject.start + subject.length, (page + 1) * kPage);
    if (start >= end) return;
    subject.gone[page] = true;
    subject.expected_bytes += end - start;
  }

  void check_told(std::uint64_t first, std::uint64_t pages) {
    for (Subject& subject : subjects_) subject.told_bytes = 0;
    std::array<InvalidationEvent, 64> events;
    for (std::size_t count; (count = channel_->take(events).value) > 0;) {
      for (std::size_t at = 0; at < count; ++at) {
        const InvalidationEvent& event = events[at];
        Subject& subject = subjects_[event.cookie];
        subject.told_bytes += event.length;
        subject.told_notices += event.count;
        CHECK(event.exact);
        CHECK(event.address >= kFirst + first * kPage);
        CHECK(event.address + event.length <= kFirst + (first + pages) * kPage);
      }
    }
    for (const Subject& subject : subjects_) {
      CHECK_EQ(subject.told_bytes, subject.expected_bytes);
      if (subject.watch != nullptr) CHECK_EQ(subject.watch->raised(), subject.told_notices);
    }
  }

  Random random_;
  std::unique_ptr<ChannelHandle> channel_;
  std::vector<Subject> subjects_;
};

TEST("invalidation model: regions of all sizes, one over the other") {
  Ground ground(seed());
  for (std::size_t round = 0; round < rounds(4000); ++round) ground.one_round();
}

}  // namespace
}  // namespace softhca::testing
