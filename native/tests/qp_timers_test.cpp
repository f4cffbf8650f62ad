#include "adapter/qp_timers.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "tests/check.hpp"
#include "tests/rounds.hpp"
#include "vocabulary/random.hpp"

namespace softhca {
namespace {

std::vector<std::uint32_t> all_due(QpTimers& timers, std::uint64_t now_ns) {
  std::vector<std::uint32_t> due;
  while (const std::uint32_t qpn = timers.pop_due(now_ns)) due.push_back(qpn);
  return due;
}

TEST("timers: a deadline that has moved on is not due early") {
  QpTimers timers;
  timers.set(17, 100);
  timers.set(17, 300);
  CHECK_EQ(timers.next_ns(), 100u);
  CHECK_EQ(timers.pop_due(200), 0u);
  CHECK_EQ(timers.next_ns(), 300u);
  CHECK_EQ(timers.pop_due(299), 0u);
  CHECK_EQ(timers.pop_due(300), 17u);
  CHECK_EQ(timers.next_ns(), kNever);
}

TEST("timers: one that has none any more is due no more, and has none left behind") {
  QpTimers timers;
  timers.set(17, 100);
  timers.set(17, kNever);
  CHECK_EQ(timers.pop_due(1000), 0u);
  CHECK_EQ(timers.entries(), 0u);
}

TEST("timers: a number that is used again has nothing of the one before") {
  QpTimers timers;
  const std::uint32_t before = 17;
  const std::uint32_t behind = 17 | 1u << QpTable::kSlotBits;
  timers.set(before, 100);
  timers.forget(before);
  timers.set(behind, 100);
  CHECK_EQ(timers.pop_due(99), 0u);
  CHECK_EQ(timers.pop_due(100), behind);
  CHECK_EQ(timers.pop_due(100), 0u);
}

TEST("timers: nobody is woken for what was forgotten") {
  QpTimers timers;
  for (const std::uint32_t qpn : {3u, 5u, 7u}) timers.set(qpn, 100 * qpn);
  timers.forget(5);
  CHECK_EQ(timers.next_ns(), 300u);
  timers.forget(3);
  CHECK_EQ(timers.next_ns(), 700u);
  timers.forget(7);
  CHECK_EQ(timers.next_ns(), kNever);
}

TEST("timers: those of one time come by their numbers") {
  QpTimers timers;
  for (const std::uint32_t qpn : {9u, 3u, 7u}) timers.set(qpn, 50);
  CHECK(all_due(timers, 50) == (std::vector<std::uint32_t>{3, 7, 9}));
}

TEST("timers: what is forgotten and set again, over and over, does not pile up") {
  QpTimers timers;
  for (std::uint64_t turn = 0; turn < 10'000; ++turn) {
    timers.set(5, 1'000'000 - turn);
    timers.forget(5);
    timers.set(5, 2'000'000 + turn);
    CHECK(timers.entries() <= 100);
  }
}

// Against a list of deadlines: whatever is done, exactly what is due comes, and once.
TEST("timers: whatever moves, what is due comes once") {
  Random random(testing::seed());
  QpTimers timers;
  std::map<std::uint32_t, std::uint64_t> deadlines;
  std::uint64_t now_ns = 1;
  const std::size_t turns = testing::rounds(20'000);
  for (std::size_t turn = 0; turn < turns; ++turn) {
    const auto qpn = static_cast<std::uint32_t>(2 + random.below(40));
    switch (random.below(8)) {
      case 0:
        timers.forget(qpn);
        deadlines.erase(qpn);
        break;
      case 1:
        timers.set(qpn, kNever);
        deadlines.erase(qpn);
        break;
      case 2:
        now_ns += random.below(300);
        break;
      default:
        deadlines[qpn] = now_ns + random.below(1000);
        timers.set(qpn, deadlines[qpn]);
    }
    std::uint64_t first_ns = kNever;
    for (const auto& [one, at_ns] : deadlines) first_ns = std::min(first_ns, at_ns);
    CHECK(timers.next_ns() <= first_ns);
    CHECK(timers.entries() <= 2 * 40 + 64 + 1);
    std::vector<std::uint32_t> due = all_due(timers, now_ns);
    std::ranges::sort(due);
    std::vector<std::uint32_t> expected;
    for (const auto& [one, at_ns] : deadlines) {
      if (at_ns <= now_ns) expected.push_back(one);
    }
    CHECK(due == expected);
    for (const std::uint32_t one : due) deadlines.erase(one);
  }
}

}  // namespace
}  // namespace softhca
