// Time-outs of requests to a neighbour whose answer may lie in the ring.
#include <array>
#include <utility>

#include "tests/neighbour_sides.hpp"

namespace softhca::testing {
namespace {

using namespace sides;

constexpr std::uint64_t kLater = kNow + 200'000'000;  // Behind the retry timer.

// Two sides, one of which has asked, and does not ask twice.
struct Asked {
  Side side{1};
  Side other{2};

  Asked() {
    introduce(side, other);
    QpAttr attr;
    attr.qp_state = QpState::RESET;
    side.modify(attr, kQpState);
    side.connect(other, /*retries=*/0);
    SendWr write = work(WrOpcode::RDMA_WRITE, side, other);
    write.sges = {{side.address(), 64, side.mr.lkey}};
    post(side, {write});
  }
  ~Asked() {
    side.go();
    other.go();
  }
  void answer() {
    CHECK(other.neighbours->fetch(kNow));
    CHECK(!other.adapter.exchange(kNow));
  }
  WcStatus status() {
    Completion completion;
    completion.status = WcStatus::GENERAL_ERR;
    static_cast<void>(side.adapter.poll_cq(side.cq, {&completion, 1}));
    return completion.status;
  }
};

// The process was stopped, or something else was fetched for so long.
TEST("neighbour: no time-out is believed before the ring is read") {
  Asked asked;
  asked.answer();
  asked.side.adapter.advance(kLater);
  CHECK(asked.side.neighbours->fetch(kLater));
  CHECK_EQ(asked.status(), WcStatus::SUCCESS);
}

TEST("neighbour: a time-out comes though the ring is never read, and at once where it is empty") {
  for (const bool is_answered : {false, true}) {
    Asked asked;
    if (is_answered) asked.answer();
    asked.side.adapter.advance(kLater);
    CHECK_EQ(asked.side.adapter.next_deadline_ns() == kNever, !is_answered);
    for (std::uint64_t at_ns = kLater; (at_ns = asked.side.adapter.next_deadline_ns()) != kNever;) {
      CHECK(at_ns < kLater + 200'000'000);
      asked.side.adapter.advance(at_ns);
    }
    CHECK_EQ(asked.status(), WcStatus::RETRY_EXC_ERR);
  }
}

}  // namespace
}  // namespace softhca::testing
