// The parts of a region that are gone, against a map of every byte.

#include <vector>

#include "memory/gone_ranges.hpp"
#include "tests/check.hpp"
#include "vocabulary/random.hpp"

namespace softhca::testing {
namespace {

TEST("gone ranges: each byte goes once") {
  Random random(seed());
  for (int round = 0; round < 300; ++round) {
    GoneRanges gone;
    if (round % 2 == 0) gone.reserve(50);
    std::vector<int> times(512, 0);
    for (int step = 0; step < 60; ++step) {
      const std::uint64_t start = random.below(512);
      const std::uint64_t end = start + random.below(std::min<std::uint64_t>(512 - start, 9) + 1);
      const auto before = times;
      gone.add({start, end}, [&](const AddressRange& part, bool exact) {
        CHECK(!part.empty());
        for (std::uint64_t at = part.start; at < part.end; ++at) {
          ++times[at];
          if (exact) CHECK(at >= start && at < end);
        }
      });
      for (std::uint64_t at = start; at < end; ++at) CHECK_EQ(times[at], 1);
      CHECK(gone.size() <= gone.capacity());
      for (std::uint64_t at = 0; at < 512; ++at) {
        CHECK(times[at] <= 1 && times[at] >= before[at]);
        CHECK_EQ(gone.overlaps({at, at + 1}), times[at] == 1);
      }
    }
  }
}

TEST("gone ranges: pages around a range and within it, of any size") {
  for (const std::uint64_t page : {0x1000, 0x4000, 0x10000}) {
    const AddressRange one{page + 1, 3 * page - 1};
    CHECK_EQ(pages_around(one, page).start, page);
    CHECK_EQ(pages_around(one, page).end, 3 * page);
    CHECK(pages_within(one, page).empty());
    const AddressRange whole{page, 3 * page};
    CHECK(pages_around(whole, page) == whole);
    CHECK(pages_within(whole, page) == whole);
  }
}

TEST("gone ranges: neighbours join, an empty range is nothing") {
  GoneRanges gone;
  const auto ignore = [](const AddressRange&, bool) {};
  gone.add({10, 20}, ignore);
  gone.add({30, 40}, ignore);
  gone.add({20, 30}, ignore);
  gone.add({50, 50}, ignore);
  CHECK_EQ(gone.size(), 1u);
  CHECK((gone[0] == AddressRange{10, 40}));
  CHECK(!gone.overlaps({40, 60}));
  CHECK(!gone.overlaps({20, 20}));
}

TEST("gone ranges: without space the nearest two become one, which is not exact") {
  GoneRanges gone;
  std::vector<std::pair<AddressRange, bool>> told;
  for (std::uint64_t at = 0; at <= GoneRanges::kCapacity; ++at) {
    const std::uint64_t start = 100 * at - (at > 5 ? 10 : 0);
    gone.add({start, start + 10},
             [&](const AddressRange& part, bool exact) { told.emplace_back(part, exact); });
  }
  CHECK_EQ(gone.size(), GoneRanges::kCapacity);
  CHECK_EQ(told.size(), GoneRanges::kCapacity + 2);
  CHECK((told.back() == std::pair(AddressRange{510, 590}, false)));
  CHECK(gone.overlaps({550, 551}));
}

TEST("gone ranges: with space for every other page, all is exact") {
  GoneRanges gone;
  gone.reserve(1000);
  CHECK_EQ(gone.capacity(), 1000u);
  Random random(seed());
  std::vector<std::uint64_t> places(1000);
  for (std::uint64_t at = 0; at < places.size(); ++at) places[at] = 2 * at;
  for (std::size_t left = places.size(); left > 0; --left) {
    std::swap(places[random.below(left)], places[left - 1]);
    const AddressRange page{places[left - 1], places[left - 1] + 1};
    gone.add(page, [&](const AddressRange& part, bool exact) { CHECK(exact && part == page); });
    CHECK(gone.overlaps(page) && !gone.overlaps({page.start + 1, page.start + 2}));
  }
  CHECK_EQ(gone.size(), 1000u);
  gone.add({0, 2000}, [](const AddressRange& part, bool exact) {
    CHECK(exact && part.end - part.start == 1);
  });
  CHECK_EQ(gone.size(), 1u);

  GoneRanges large;
  large.reserve(std::size_t{1} << 40);
  CHECK_EQ(large.capacity(), GoneRanges::kMostCapacity);
}

}  // namespace
}  // namespace softhca::testing
