// A neighbour that stands still, as one that was stopped by a signal: it takes nothing out of its
// ring, and its process does not end.
#include "tests/neighbour_sides.hpp"

namespace softhca::testing {
namespace {

using namespace sides;

constexpr std::uint64_t kLong = 60'000'000'000;

struct Sender {
  explicit Sender(Side& from) : side(from) {
    send.send_flags = kSendSignaled;
    send.sges = {side.sge()};
  }
  bool has_completed() {
    Completion completion;
    return side.adapter.poll_cq(side.cq, {&completion, 1}).value == 1;
  }
  // Until one finds no room.
  void fill(std::uint64_t now_ns) {
    const SendWr* const sends[] = {&send};
    std::size_t posted = 0;
    do {
      CHECK(side.adapter.post_send(side.qpn, sends, posted, now_ns).ok());
      CHECK(!side.adapter.exchange(now_ns));
    } while (has_completed());
  }
  // What a driver does when a deadline has come.
  void pass(std::uint64_t now_ns) {
    side.adapter.advance(now_ns);
    if (side.neighbours->has_work()) static_cast<void>(side.neighbours->fetch(now_ns));
    static_cast<void>(side.adapter.exchange(now_ns));
  }
  Side& side;
  SendWr send;
};

TEST("neighbour: one that stands still is waited for, but not for ever") {
  Side side(1, QpType::UC);
  Side still(2, QpType::UC);
  introduce(side, still);
  Sender sender(side);
  sender.fill(kNow);
  while (side.neighbours->is_inhabited()) {
    const std::uint64_t deadline_ns = side.adapter.next_deadline_ns();
    CHECK(deadline_ns > kNow + 1'000'000'000);  // A busy machine is no dead peer.
    CHECK(deadline_ns < kNow + kLong);
    sender.pass(deadline_ns);
  }
  // Its packets take the network now.
  CHECK(side.adapter.wants_driver());
  CHECK(side.adapter.next_deadline_ns() == kNever);
  side.go();
  still.go();
}

TEST("neighbour: one that is slow is not given up") {
  Side side(1, QpType::UC);
  Side slow(2, QpType::UC);
  introduce(side, slow);
  Sender sender(side);
  sender.fill(kNow);
  for (int times = 0; times < 20; ++times) {
    const std::uint64_t deadline_ns = side.adapter.next_deadline_ns();
    CHECK(deadline_ns != kNever);
    while (slow.neighbours->fetch(deadline_ns) && !side.neighbours->has_work()) continue;
    sender.pass(deadline_ns);
    CHECK(sender.has_completed());
    sender.fill(deadline_ns);
  }
  CHECK(side.neighbours->is_inhabited());
  while (slow.neighbours->fetch(kNow)) continue;
  sender.pass(kNow);
  CHECK(side.adapter.next_deadline_ns() == kNever);
  side.go();
  slow.go();
}

}  // namespace
}  // namespace softhca::testing
