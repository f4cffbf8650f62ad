// Order, arming, overflow, purge and resize of a completion queue (IBTA Vol 1, 11.4.2).

#include "queue/completion_queue.hpp"

#include <array>

#include "tests/check.hpp"

namespace softhca::testing {
namespace {

using Push = CompletionQueue::Push;

CallTime call_time;

Completion entry(std::uint64_t wr_id, std::uint32_t qpn = 5, bool receive = false,
                 bool solicited = false, WcStatus status = WcStatus::SUCCESS) {
  Completion completion;
  completion.wr_id = wr_id;
  completion.qpn = qpn;
  completion.is_receive = receive;
  completion.solicited = solicited;
  completion.status = status;
  return completion;
}

std::vector<std::uint64_t> drain(CompletionQueue& cq) {
  std::array<Completion, 64> out;
  std::vector<std::uint64_t> ids;
  const std::size_t count = cq.poll(out);
  for (std::size_t at = 0; at < count; ++at) {
    ids.push_back(out[at].wr_id);
  }
  return ids;
}

TEST("cq: one event for the next completion after arming, then none") {
  CompletionQueue cq(1, 8);
  CHECK(cq.push(entry(1), call_time) == Push::ADDED);
  cq.arm(false);
  CHECK(cq.push(entry(2), call_time) == Push::ADDED_AND_NOTIFY);
  CHECK(cq.push(entry(3), call_time) == Push::ADDED);
}

TEST("cq: solicited arming waits for a solicited receive or any error") {
  CompletionQueue cq(1, 16);
  cq.arm(true);
  CHECK(cq.push(entry(1), call_time) == Push::ADDED);
  CHECK(cq.push(entry(2, 5, true, false), call_time) == Push::ADDED);
  CHECK(cq.push(entry(3, 5, true, true), call_time) == Push::ADDED_AND_NOTIFY);
  cq.arm(true);
  CHECK(cq.push(entry(4, 5, false, false, WcStatus::WR_FLUSH_ERR), call_time) ==
        Push::ADDED_AND_NOTIFY);
}

TEST("cq: arming for any upgrades, arming for solicited afterwards changes nothing") {
  CompletionQueue cq(1, 8);
  cq.arm(true);
  cq.arm(false);
  CHECK(cq.push(entry(1), call_time) == Push::ADDED_AND_NOTIFY);
  cq.arm(false);
  cq.arm(true);
  CHECK(cq.push(entry(2), call_time) == Push::ADDED_AND_NOTIFY);
}

TEST("cq: overflow is told once, and the queue is dead") {
  CompletionQueue cq(1, 2);
  CHECK(cq.push(entry(1), call_time) == Push::ADDED);
  CHECK(cq.push(entry(2), call_time) == Push::ADDED);
  CHECK(cq.push(entry(3), call_time) == Push::OVERFLOW);
  CHECK(cq.push(entry(4), call_time) == Push::DISCARDED);
  CHECK(drain(cq) == (std::vector<std::uint64_t>{1, 2}));
}

TEST("cq: purge takes one queue pair's completions and keeps the order of the rest") {
  CompletionQueue cq(1, 8);
  for (std::uint64_t id = 0; id < 20; ++id) {
    CHECK(cq.push(entry(id, id % 2 == 0 ? 5 : 6), call_time) == Push::ADDED);
    if (id == 12) {
      CHECK_EQ(drain(cq).size(), 1u);
    }
    if (id % 4 == 3 && id < 12) {
      CHECK_EQ(drain(cq).size(), 4u);
    }
    if (id == 19) {
      cq.purge(5);
    }
  }
  CHECK(drain(cq) == (std::vector<std::uint64_t>{13, 15, 17, 19}));
}

TEST("cq: resize keeps content and order, and refuses to lose any") {
  CompletionQueue cq(1, 4);
  for (std::uint64_t id = 0; id < 3; ++id) {
    CHECK(cq.push(entry(id), call_time) == Push::ADDED);
  }
  CHECK(!cq.resize(2));
  CHECK(cq.resize(3));
  CHECK_EQ(cq.capacity(), 3u);
  CHECK(cq.resize(64));
  CHECK(cq.push(entry(3), call_time) == Push::ADDED);
  CHECK(drain(cq) == (std::vector<std::uint64_t>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace softhca::testing
