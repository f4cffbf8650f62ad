#include "driver/counter_clock.hpp"

#include "driver/clock.hpp"
#include "tests/check.hpp"
#include "vocabulary/random.hpp"

namespace softhca {
namespace {

// A machine whose counter runs at two and a half counts a nanosecond.
std::uint64_t real_ns = 0;
std::uint64_t skipped_counts = 0;
std::uint64_t lost_ns = 0;  // Somebody else runs between the clock and the counter, for so long.
int looks = 0;

std::uint64_t shown_clock() {
  ++looks;
  const std::uint64_t shown_ns = real_ns;
  real_ns += lost_ns;
  return shown_ns;
}
std::uint64_t shown_counter() { return real_ns * 5 / 2 + skipped_counts; }

CounterClock clock_of_shown_machine() {
  real_ns = 1'000'000'000;
  skipped_counts = lost_ns = 0;
  looks = 0;
  return {shown_clock, shown_counter};
}

// Asks every 100 ns, for so long, and says how far off it was at the most.
std::uint64_t worst_in(CounterClock& clock, std::uint64_t ns) {
  std::uint64_t worst_ns = 0;
  for (std::uint64_t passed = 0; passed < ns; passed += 100) {
    real_ns += 100;
    const std::uint64_t before_ns = real_ns;
    const std::uint64_t told_ns = clock.now_ns();
    worst_ns = std::max(worst_ns, told_ns > before_ns ? told_ns - before_ns : before_ns - told_ns);
  }
  return worst_ns;
}

TEST("counter clock: it is the clock, and looks at it once a millisecond") {
  CounterClock clock = clock_of_shown_machine();
  CHECK(worst_in(clock, 5'000'000) <= 1);
  looks = 0;
  CHECK(worst_in(clock, 100'000'000) <= 1);
  CHECK(looks >= 90);
  CHECK(looks <= 110);
}

TEST("counter clock: without a counter each question is a look") {
  real_ns = 7;
  looks = 0;
  CounterClock clock(shown_clock, nullptr);
  for (int i = 0; i < 10; ++i) CHECK_EQ(clock.now_ns(), real_ns);
  CHECK_EQ(looks, 10);
}

TEST("counter clock: a look that was interrupted is not believed for longer than it takes") {
  CounterClock clock = clock_of_shown_machine();
  CHECK(worst_in(clock, 5'000'000) <= 1);
  lost_ns = 3'000'000;
  CHECK(worst_in(clock, 1'100'000) <= 1);
  lost_ns = 0;
  CHECK(worst_in(clock, 10'000'000) <= 1);
}

TEST("counter clock: nor is one of the first looks") {
  for (int undisturbed = 0; undisturbed < 3; ++undisturbed) {
    CounterClock clock = clock_of_shown_machine();
    for (int asked = 0; asked < undisturbed; ++asked) {
      clock.now_ns();
      real_ns += 1'100'000;
    }
    lost_ns = 3'000'000;
    clock.now_ns();
    lost_ns = 0;
    CHECK(worst_in(clock, 20'000'000) <= 1);
  }
}

TEST("counter clock: a machine that slept, or moved, has another counter") {
  CounterClock clock = clock_of_shown_machine();
  CHECK(worst_in(clock, 5'000'000) <= 1);
  skipped_counts = 0 - shown_counter();
  CHECK(worst_in(clock, 3'000'000) <= 1'000'000);
  CHECK(worst_in(clock, 10'000'000) <= 1);
  real_ns += 10'000'000'000;
  CHECK(worst_in(clock, 10'000'000) <= 1);
}

TEST("counter clock: that of this machine is near its clock") {
  CounterClock clock;
  std::uint64_t far = 0;
  for (int i = 0; i < 200'000; ++i) {
    const std::uint64_t before_ns = monotonic_ns();
    const std::uint64_t told_ns = clock.now_ns();
    const std::uint64_t after_ns = monotonic_ns();
    far += told_ns + 1'000 < before_ns || told_ns > after_ns + 1'000;
  }
  CHECK_EQ(far, 0u);
}

}  // namespace
}  // namespace softhca
