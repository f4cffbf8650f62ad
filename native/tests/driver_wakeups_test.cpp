// No wake-up is lost: a consumer that arms and sleeps at random, without a time-out, while the
// drivers' threads complete.
//
// Ten million: SOFTHCA_TEST_ROUNDS=10000000 build/native/softhca_tests "no wake-up is lost"

#include <poll.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include "driver/completion_channel.hpp"
#include "driver/completion_work.hpp"
#include "tests/driver_hosts.hpp"
#include "tests/rounds.hpp"
#include "tests/simulated_pair.hpp"
#include "vocabulary/random.hpp"

namespace softhca {
namespace {

using namespace testing;

constexpr std::uint32_t kSolicited = 1, kNextComp = 2, kReportMissed = 4;
constexpr std::uint32_t kWindow = 64;

struct Run {
  DriverPair pair;
  std::shared_ptr<CompletionChannel> channel = std::make_shared<CompletionChannel>();
  const std::uint64_t completions = rounds(200'000);
  std::atomic<std::uint64_t> consumed{0};
  std::atomic<bool> lost{false};

  Run() {
    CHECK_EQ(channel->open(), 0);
    const std::uint32_t number = pair.b.driver().completion_sinks().add(channel);
    CHECK(pair.b.call([&](Adapter& adapter) { return adapter.attach_cq(pair.b.cq, number); }).ok());
    for (std::uint32_t i = 0; i < kWindow; ++i) CHECK(pair.b.recv(pair.qp_b, {}).ok());
  }

  // A poll without progress: what comes is from the drivers' threads.
  std::size_t poll(std::span<Completion> out) {
    return pair.b.call([&](Adapter& adapter) { return adapter.poll_cq(pair.b.cq, out); }).value;
  }
  int arm(std::uint32_t flags) {
    return pair.b.call([&](Adapter& adapter) { return adapter.req_notify_cq(pair.b.cq, flags); })
        .value;
  }
};

// What was taken may be unacknowledged still, on a crowded machine for long: then there is no room.
bool post(Run& run, const SendWr& wr) {
  std::array<Completion, kWindow> out;
  const std::uint64_t until_ns = monotonic_ns() + kPatienceNs;
  while (monotonic_ns() < until_ns) {
    const Status posted = run.pair.a.send(run.pair.qp_a, wr);
    if (posted.error != ENOMEM) return posted.ok();
    static_cast<void>(run.pair.a.driver().poll_cq(run.pair.a.cq, out));
  }
  return false;
}

// Sends bursts, and waits until they were taken: that is when a lost wake-up shows.
void produce(Run& run, Random random) {
  std::array<Completion, kWindow> out;
  std::uint64_t sent = 0;
  std::uint64_t moved_ns = monotonic_ns(), before = 0;
  while (sent < run.completions && !run.lost.load()) {
    const std::uint64_t burst =
        std::min<std::uint64_t>(1 + random.below(kWindow / 2), run.completions - sent);
    for (std::uint64_t i = 0; i < burst; ++i) {
      SendWr wr;
      if (i + 1 == burst) wr.send_flags = kSendSignaled | kSendSolicited;
      CHECK(post(run, wr));
    }
    sent += burst;
    const std::uint64_t left = random.below(3) == 0 ? random.below(kWindow / 2) : 0;
    while (sent - run.consumed.load() > left && !run.lost.load()) {
      static_cast<void>(run.pair.a.driver().poll_cq(run.pair.a.cq, out));
      const std::uint64_t now_ns = monotonic_ns(), consumed = run.consumed.load();
      if (consumed != before) moved_ns = now_ns;
      before = consumed;
      run.lost.store(now_ns - moved_ns > kPatienceNs);
    }
  }
  // Ends the consumer's sleep, one way or the other.
  if (run.lost.load()) run.channel->close();
}

std::uint64_t take(Run& run, std::size_t most) {
  std::array<Completion, kWindow> out;
  const std::size_t count = run.poll({out.data(), most});
  for (std::size_t i = 0; i < count; ++i) {
    CHECK_EQ(out[i].status, WcStatus::SUCCESS);
    CHECK(run.pair.b.recv(run.pair.qp_b, {}).ok());
  }
  run.consumed.fetch_add(count);
  return count;
}

// Arms in a random way; false if completions may wait without an event to come.
bool may_sleep(Run& run, Random& random) {
  const std::uint32_t kind = random.below(2) == 0 ? kSolicited : kNextComp;
  if (random.below(2) == 0) return run.arm(kind | kReportMissed) == 0;
  run.arm(kind);
  return take(run, kWindow) == 0;
}

TEST("driver: no wake-up is lost, however the consumer arms and sleeps") {
  Run run;
  Random random(seed());
  std::thread producer([&] { produce(run, Random(seed() + 1)); });
  std::uint64_t sleeps = 0;
  while (run.consumed.load() < run.completions && !run.lost.load()) {
    const std::size_t most = 1 + random.below(kWindow);
    if (take(run, most) == most) continue;
    for (std::uint64_t spin = random.below(500); spin > 0; --spin) {
      std::atomic_signal_fence(std::memory_order_seq_cst);
    }
    if (!may_sleep(run, random) || run.consumed.load() == run.completions) continue;
    ++sleeps;
    pollfd waited{run.channel->fd(), POLLIN, 0};
    ::poll(&waited, 1, -1);
    run.channel->pop();
  }
  producer.join();
  if (run.lost.load()) std::printf("lost a wake-up with the seed that is printed above\n");
  CHECK(!run.lost.load());
  CHECK_EQ(run.consumed.load(), run.completions);
  CHECK(sleeps > 0);
}

// --- the pollers of queues that call back

struct Poller {
  Pair pair{seed()};
  CompletionWork work{1};
  std::uint32_t qp_a = 0, qp_b = 0;

  Poller() {
    qp_a = pair.a.qp();
    qp_b = pair.b.qp();
    CHECK(pair.connect(true, qp_a, QpType::RC, qp_b, 1, 2).ok());
    CHECK(pair.connect(false, qp_b, QpType::RC, qp_a, 2, 1).ok());
    CHECK(pair.b.adapter->attach_cq(pair.b.cq, 1).ok());
    work.add(pair.b.cq);
    CHECK_EQ(pair.b.adapter->req_notify_cq(pair.b.cq, kNextComp).value, 0);
  }

  void complete_one() {
    CHECK(pair.recv(false, qp_b, {}).ok());
    CHECK(pair.send(true, qp_a, {}).ok());
    pair.run();
    CompletionEvent event;
    while (pair.b.adapter->next_completion_event(event)) work.notify(event.cq);
  }
};

// What a thread of SOFTIRQ or WORKQUEUE does with a queue, with a completion placed at one of its
// steps; returns how many completions it took until it had nothing more to do.
std::size_t serve_with_completion_at(int step, std::uint32_t flags) {
  Poller poller;
  poller.complete_one();
  std::size_t taken = 0;
  int at = 0;
  const auto place = [&] {
    if (at++ == step) poller.complete_one();
  };
  std::array<Completion, 16> batch;
  Adapter& adapter = *poller.pair.b.adapter;
  for (CompletionWork::Job job = poller.work.try_take(); job.cq != 0;
       job = poller.work.try_take()) {
    place();
    taken += adapter.poll_cq(job.cq, batch).value;
    place();  // Between the last poll and the arming.
    const bool again = adapter.req_notify_cq(job.cq, flags).value > 0;
    place();
    poller.work.give_back(job.cq, again);
    place();
  }
  return taken;
}

TEST("work: a completion at any step of a poller is taken, thanks to the flag") {
  for (int step = 0; step < 8; ++step) {
    const bool before_the_end = step < 4;
    CHECK_EQ(serve_with_completion_at(step, kNextComp | kReportMissed), before_the_end ? 2u : 1u);
  }
}

TEST("work: without the flag it is lost between the last poll and the arming, and only there") {
  for (int step = 0; step < 4; ++step) {
    CHECK_EQ(serve_with_completion_at(step, kNextComp), step == 1 ? 1u : 2u);
  }
}

}  // namespace
}  // namespace softhca
