#include "driver/quiet_wire.hpp"

#include "driver/clock.hpp"
#include "driver/yield_habit.hpp"
#include "tests/check.hpp"

namespace softhca {
namespace {

using Yield = YieldHabit::Yield;

// How many of so many polls look.
int looks_of(QuietWire& wire, int polls, std::uint64_t last_ns, bool crowded) {
  int looks = 0;
  for (int i = 0; i < polls; ++i) looks += !wire.may_skip(last_ns, crowded);
  return looks;
}

void look_in_vain(QuietWire& wire, int times) {
  for (int i = 0; i < times; ++i) wire.looked(false);
}

TEST("driver: each poll looks at a network that was heard of") {
  QuietWire wire;
  look_in_vain(wire, 63);
  CHECK_EQ(looks_of(wire, 1000, 0, false), 1000);
  look_in_vain(wire, 1000);
  wire.looked(true);
  CHECK(wire.is_busy());
  CHECK_EQ(looks_of(wire, 1000, 0, false), 1000);
}

TEST("driver: few polls look at a quiet network, crowded or not") {
  QuietWire wire;
  look_in_vain(wire, 1000);
  CHECK(!wire.is_busy());
  CHECK_EQ(looks_of(wire, 3200, 0, false), 100);
  // Who shares the processor with its peer does not wait for the time as well.
  CHECK_EQ(looks_of(wire, 3200, monotonic_ns(), true), 100);
}

TEST("driver: a caller yields when it has polled in vain for long, and learns from it") {
  YieldHabit habit;
  const std::uint64_t begin_ns = monotonic_ns();
  CHECK(!habit.is_waiting());
  CHECK_EQ(habit.in_vain(begin_ns), Yield::NOT_DONE);
  CHECK(habit.is_waiting());
  CHECK_EQ(habit.in_vain(begin_ns + 49'000), Yield::NOT_DONE);
  CHECK(habit.in_vain(begin_ns + 50'000) != Yield::NOT_DONE);
  CHECK(!habit.is_crowded());
  habit.learn(Yield::SOMEBODY_RAN, true);
  CHECK(habit.is_crowded());
  habit.found();
  CHECK(!habit.is_waiting());
  CHECK_EQ(habit.in_vain(begin_ns + 60'000), Yield::NOT_DONE);
  CHECK(habit.in_vain(begin_ns + 61'000) != Yield::NOT_DONE);
  // Nobody wanted the processor: each time it waits twice as long again.
  for (int i = 0; i < 6; ++i) habit.learn(Yield::NOBODY_RAN, false);
  CHECK(!habit.is_crowded());
}

}  // namespace
}  // namespace softhca
