// A neighbour that sends something and goes.
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "tests/neighbour_sides.hpp"

namespace softhca::testing {
namespace {

using namespace sides;

// Posts a receive there, and sends so many bytes.
void send(Side& from, Side& to, std::uint32_t bytes) {
  RecvWr recv;
  recv.wr_id = 7;
  recv.sges = {to.sge()};
  const RecvWr* const recvs[] = {&recv};
  std::size_t posted = 0;
  CHECK(to.adapter.post_recv(to.qpn, recvs, posted, kNow).ok());
  SendWr send;
  send.send_flags = kSendSignaled;
  send.sges = {{from.address(), bytes, from.mr.lkey}};
  const SendWr* const sends[] = {&send};
  CHECK(from.adapter.post_send(from.qpn, sends, posted, kNow).ok());
  CHECK(!from.adapter.exchange(kNow));
}

// A message is sent, and completes before anybody has looked at it.
void send_unseen(Side& from, Side& to) {
  std::ranges::fill(from.bytes, 42);
  send(from, to, kBytes);
  Completion completion;
  CHECK_EQ(from.adapter.poll_cq(from.cq, {&completion, 1}).value, 1u);
  CHECK(completion.status == WcStatus::SUCCESS);
}

void check_arrived(Side& to) {
  Completion completion;
  CHECK_EQ(to.adapter.poll_cq(to.cq, {&completion, 1}).value, 1u);
  CHECK_EQ(completion.wr_id, 7u);
  CHECK_EQ(completion.byte_len, kBytes);
  CHECK_EQ(std::ranges::count(to.bytes, 42), static_cast<std::ptrdiff_t>(kBytes));
}

TEST("neighbour: what one has sent before it went arrives") {
  Side leaver(1, QpType::UC);
  Side other(2, QpType::UC);
  introduce(leaver, other);
  send_unseen(leaver, other);
  leaver.go();
  while (other.neighbours->is_inhabited()) other.neighbours->serve();
  check_arrived(other);
  other.go();
}

// Over the network a probe comes long before the time-out, which is 67 ms here.
TEST("neighbour: what one leaves unanswered is soon asked for over the network") {
  constexpr std::uint64_t kSoonNs = 10'000'000;
  Side sender(1);
  Side leaver(2);
  introduce(sender, leaver);
  send(sender, leaver, 64);
  CHECK(leaver.neighbours->fetch(kNow));
  CHECK(!leaver.adapter.exchange(kNow));
  CHECK(sender.neighbours->fetch(kNow));
  send(sender, leaver, 64);
  CHECK(sender.adapter.next_deadline_ns() > kNow + kSoonNs);
  leaver.go();
  while (sender.neighbours->is_inhabited()) sender.neighbours->serve();
  CHECK(sender.adapter.next_deadline_ns() < kNow + kSoonNs);
  sender.go();
}

// The child has copies of all descriptors, and may live long.
TEST("neighbour: one that goes is seen to go though its process has forked meanwhile") {
  Side leaver(1);
  Side other(2);
  introduce(leaver, other);
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  leaver.go();
  for (int times = 0; times < 100; ++times) other.neighbours->serve();
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  CHECK(!other.neighbours->is_inhabited());
  other.go();
}

// Its thread would try without end.
TEST("neighbour: a guest for whom there is no descriptor keeps nobody awake") {
  Side hasty(1);
  Side full(2);
  hasty.neighbours->meet(full.gid());
  rlimit before{};
  CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  full.neighbours->serve();
  CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  pollfd ready{full.neighbours->ready_fd(), POLLIN, 0};
  CHECK_EQ(poll(&ready, 1, 0), 0);
  hasty.go();
  full.go();
}

// Nobody tells the sender of an unreliable connection when its payload has been fetched.
TEST("neighbour: an unreliable payload is its sender's again once it has completed") {
  Side sender(1, QpType::UC);
  Side other(2, QpType::UC);
  introduce(sender, other);
  send_unseen(sender, other);
  std::ranges::fill(sender.bytes, 1);
  CHECK(sender.adapter.destroy_qp(sender.qpn).ok());
  CHECK(other.neighbours->fetch(kNow));
  check_arrived(other);
  sender.go();
  other.go();
}

// Nothing comes back from the peer of an unreliable connection, and who polls leaves the thread
// nothing to do.
TEST("neighbour: what polls look at tells that there is room again") {
  Side sender(1, QpType::UC);
  Side other(2, QpType::UC);
  introduce(sender, other);
  SendWr send;
  send.send_flags = kSendSignaled;
  send.sges = {sender.sge()};
  const SendWr* const sends[] = {&send};
  Completion completion;
  const auto has_completed = [&] {
    return sender.adapter.poll_cq(sender.cq, {&completion, 1}).value == 1;
  };
  std::size_t posted = 0;
  do {
    CHECK(sender.adapter.post_send(sender.qpn, sends, posted, kNow).ok());
    CHECK(!sender.adapter.exchange(kNow));
  } while (has_completed());
  CHECK(!sender.neighbours->has_work());
  while (other.neighbours->fetch(kNow)) continue;
  CHECK(sender.neighbours->has_work());
  static_cast<void>(sender.neighbours->fetch(kNow));
  CHECK(!sender.adapter.exchange(kNow));
  CHECK(has_completed());
  CHECK(!sender.neighbours->has_work());
  sender.go();
  other.go();
}

// What went into its ring would be lost.
TEST("neighbour: one that did not wait for an answer is sent nothing") {
  Side hasty(1);
  Side slow(2);
  hasty.neighbours->meet(slow.gid());
  CHECK(!hasty.neighbours->is_inhabited());
  while (!slow.neighbours->is_inhabited()) slow.neighbours->serve();
  CHECK(slow.neighbours->path_to(slow.gid(), hasty.gid()) == nullptr);
  while (slow.neighbours->is_inhabited()) slow.neighbours->serve();
  hasty.go();
  slow.go();
}

}  // namespace
}  // namespace softhca::testing
