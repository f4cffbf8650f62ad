#include "vocabulary/call_time.hpp"

#include "driver/clock.hpp"
#include "tests/check.hpp"

namespace softhca {
namespace {

std::uint64_t shown_ns = 0;
int reads = 0;

struct Shown final : Clock {
  std::uint64_t now_ns() override { return ++reads, shown_ns; }
  std::uint64_t late_ns() override { return shown_ns + 5; }
};
Shown shown;

TEST("call time: the clock is read by the first who asks, and once a call") {
  CallTime time;
  time.use(shown);
  reads = 0;
  shown_ns = 100;
  time.begin();
  time.tell(kAskClock);
  CHECK_EQ(time.late_ns(), 105u);
  CHECK_EQ(reads, 0);
  CHECK_EQ(time.now_ns(), 100u);
  shown_ns = 200;
  time.tell(kAskClock);
  CHECK_EQ(time.now_ns(), 100u);
  CHECK_EQ(time.late_ns(), 100u);
  CHECK_EQ(reads, 1);
  time.begin();
  CHECK_EQ(time.now_ns(), 200u);
  CHECK_EQ(reads, 2);
}

TEST("call time: who tells the time need not be asked, and it never goes back") {
  CallTime time;
  time.use(shown);
  reads = 0;
  shown_ns = 100;
  time.begin();
  time.tell(300);
  CHECK_EQ(time.now_ns(), 300u);
  CHECK_EQ(time.late_ns(), 300u);
  time.begin();
  CHECK_EQ(time.late_ns(), 300u);
  CHECK_EQ(time.now_ns(), 300u);
  CHECK_EQ(reads, 1);
}

TEST("call time: without a clock it stands still between those who tell it") {
  CallTime time;
  time.tell(7);
  time.begin();
  CHECK_EQ(time.now_ns(), 7u);
  CHECK_EQ(time.late_ns(), 7u);
}

TEST("call time: the late time of the real clock is near it") {
  for (int i = 0; i < 1000; ++i) {
    // It may be late, and another process may run between two of these lines.
    const std::uint64_t before_ns = monotonic_ns();
    const std::uint64_t late_ns = late_monotonic_ns();
    const std::uint64_t after_ns = monotonic_ns();
    CHECK(late_ns + 1'000'000'000 > before_ns);
    CHECK(late_ns < after_ns + 1'000'000'000);
  }
}

}  // namespace
}  // namespace softhca
