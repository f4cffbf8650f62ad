// DCQCN's two ends: how often a peer is told, how a rate falls and comes back.
#include <cstdint>

#include "tests/check.hpp"
#include "transport/congestion.hpp"

namespace softhca::testing {
namespace {

constexpr std::uint64_t kLine = 10'000'000'000;
constexpr std::uint64_t kRound = 55'000;

CongestionSettings settings() {
  CongestionSettings given;
  given.line_bits_per_second = kLine;
  return given;
}

TEST("congestion: a peer is told once in an interval") {
  CongestionControl control(settings());
  CHECK(control.on_mark(1000));
  CHECK(control.wants_notification());
  control.notified();
  CHECK(!control.on_mark(2000));
  CHECK(!control.on_mark(50'999));
  CHECK(!control.wants_notification());
  CHECK(control.on_mark(51'000));
}

TEST("congestion: without a notification nothing waits") {
  CongestionControl control(settings());
  for (std::uint64_t now = 0; now < 1000; ++now) {
    CHECK(control.may_send(now));
    control.sent(4096, now);
  }
  CHECK_EQ(control.rate_bits_per_second(), 0u);
  CHECK_EQ(control.deadline_ns(), kNever);
}

TEST("congestion: the first notification halves the rate, and packets keep to it") {
  CongestionControl control(settings());
  control.on_notification(100);
  CHECK_EQ(control.rate_bits_per_second(), kLine / 2);
  CHECK(control.may_send(100));
  control.sent(1000, 100);
  CHECK(!control.may_send(101));
  CHECK_EQ(control.deadline_ns(), 100u + 1600);
  CHECK(!control.due(1699));
  CHECK(control.due(1700));
  CHECK(!control.due(1701));
  CHECK(control.may_send(1700));
}

TEST("congestion: a rate goes halfway back, then its goal grows, until it is the line's") {
  CongestionControl control(settings());
  for (int i = 0; i < 3; ++i) control.on_notification(0);
  // Alpha is one to begin with, and stays so: an eighth is left, and a quarter was before.
  CHECK_EQ(control.rate_bits_per_second(), kLine / 8);
  std::uint64_t goal = kLine / 4;
  std::uint64_t rate = kLine / 8;
  for (std::uint64_t round = 1; round <= 10; ++round) {
    CHECK(control.may_send(round * kRound));
    if (round >= 5) goal += 40'000'000;
    rate = (rate + goal) / 2;
    CHECK_EQ(control.rate_bits_per_second(), rate);
  }
  CHECK(control.may_send(1'000'000'000));
  CHECK_EQ(control.rate_bits_per_second(), 0u);
}

TEST("congestion: bytes let a rate grow as time does, and both together faster") {
  CongestionControl control(settings());
  for (int i = 0; i < 3; ++i) control.on_notification(0);
  for (int i = 0; i < 6; ++i) control.sent(10'000'000, 1);
  CHECK(control.rate_bits_per_second() > kLine / 4);
  CHECK(control.rate_bits_per_second() < kLine / 4 + 80'000'000);
  // The sixth round of time: from here on the goal grows by 200 Mb/s.
  const std::uint64_t before = control.rate_bits_per_second();
  static_cast<void>(control.may_send(7 * kRound));
  CHECK(control.rate_bits_per_second() > before + 100'000'000);
}

TEST("congestion: alpha decays while nobody complains, and cuts become small") {
  CongestionControl control(settings());
  control.on_notification(0);
  CHECK(control.may_send(1'000'000'000));
  control.on_notification(1'000'000'000);
  CHECK(control.rate_bits_per_second() > kLine * 99 / 100);
}

TEST("congestion: no rate falls below the least") {
  CongestionControl control(settings());
  for (int i = 0; i < 100; ++i) control.on_notification(0);
  CHECK_EQ(control.rate_bits_per_second(), 10'000'000u);
  control.reset();
  CHECK(control.may_send(0));
  CHECK_EQ(control.rate_bits_per_second(), 0u);
}

}  // namespace
}  // namespace softhca::testing
