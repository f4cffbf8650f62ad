// Callers who wait for an event of a channel, and serve the peers meanwhile.
#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "driver/completion_channel.hpp"
#include "tests/driver_hosts.hpp"

namespace softhca {
namespace {

using namespace testing;
using Bytes = std::vector<std::uint8_t>;
using Waited = Driver::Waited;

OpenOptions over(bool neighbours) {
  OpenOptions options;
  options.shortcut = neighbours;
  return options;
}

// Tells of the completions of a host's queue, which is polled without making progress.
struct Ear {
  DriverHost& host;
  std::shared_ptr<CompletionChannel> channel = std::make_shared<CompletionChannel>();

  explicit Ear(DriverHost& of) : host(of) {
    CHECK_EQ(channel->open(), 0);
    const std::uint32_t sink = host.driver().completion_sinks().add(channel);
    CHECK(host.call([&](Adapter& adapter) { return adapter.attach_cq(host.cq, sink); }).ok());
  }

  std::size_t poll(std::span<Completion> out) {
    return host.call([&](Adapter& adapter) { return adapter.poll_cq(host.cq, out); }).value;
  }

  // The way of a program that sleeps: poll, arm, poll, wait. GENERAL_ERR: nothing came.
  Completion next() {
    std::array<Completion, 1> out;
    const std::uint64_t until_ns = monotonic_ns() + kPatienceNs;
    while (monotonic_ns() < until_ns) {
      if (poll(out) == 1) return out[0];
      CHECK(host.call([&](Adapter& adapter) { return adapter.req_notify_cq(host.cq, 2); }).ok());
      host.driver().caller_sleeps();
      if (poll(out) == 1) return out[0];
      if (host.driver().wait_for(*channel, until_ns) == Waited::EVENT) channel->pop();
    }
    out[0].status = WcStatus::GENERAL_ERR;
    return out[0];
  }
};

SendWr signaled() {
  SendWr wr;
  wr.send_flags = kSendSignaled;
  return wr;
}

// Both ends sleep between a message and its answer, and each message completes at both.
void goes_back_and_forth(bool neighbours) {
  constexpr int kTimes = 500;
  DriverPair pair(over(neighbours), over(neighbours));
  const auto play = [](DriverHost& host, std::uint32_t qpn, bool first) {
    Ear ear(host);
    for (int times = 0; times < kTimes; ++times) {
      if (first) CHECK(host.send(qpn, signaled()).ok());
      for (int i = 0; i < 2; ++i) {
        const Completion completion = ear.next();
        CHECK_EQ(completion.status, WcStatus::SUCCESS);
        if (completion.opcode != WcOpcode::RECV) continue;
        CHECK(host.recv(qpn, {}).ok());
        if (!first) CHECK(host.send(qpn, signaled()).ok());
      }
    }
  };
  for (int i = 0; i < 2; ++i) {
    CHECK(pair.a.recv(pair.qp_a, {}).ok());
    CHECK(pair.b.recv(pair.qp_b, {}).ok());
  }
  std::thread other([&] { play(pair.b, pair.qp_b, false); });
  play(pair.a, pair.qp_a, true);
  other.join();
}

TEST("driver: two that sleep between messages hear of each, over the network") {
  goes_back_and_forth(false);
}

TEST("driver: two that sleep between messages hear of each, as neighbours") {
  goes_back_and_forth(true);
}

// While it waits for what never comes, and after it has gone, others read and write its memory.
// They ask once: what is not done then is never done.
void serves_its_peers(bool neighbours) {
  constexpr int kTimes = 200;
  OpenOptions options = over(neighbours);
  options.retry_early = false;
  constexpr std::uint8_t kNoTimeout = 0;
  Bytes source = pattern(4096, 3), target(source.size());
  DriverPair pair(options, options, kNoTimeout);
  const MrInfo source_mr = pair.b.reg(source), target_mr = pair.a.reg(target);
  const auto serve = [&] {
    target.assign(target.size(), 0);
    for (const WrOpcode opcode : {WrOpcode::RDMA_READ, WrOpcode::RDMA_WRITE}) {
      CHECK(pair.a.send(pair.qp_a, rdma(opcode, target, target_mr, source, source_mr)).ok());
      CHECK_EQ(pair.a.wait().status, WcStatus::SUCCESS);
    }
    CHECK(target == source);
  };
  Ear ear(pair.b);
  std::atomic<bool> done{false};
  std::thread waiter([&] {
    while (!done.load()) {
      CHECK_EQ(pair.b.driver().wait_for(*ear.channel, monotonic_ns() + 20'000'000),
               Waited::TIMEOUT);
    }
  });
  for (int times = 0; times < kTimes; ++times) serve();
  done.store(true);
  waiter.join();
  for (int times = 0; times < 20; ++times) serve();
}

TEST("driver: who waits in vain serves its peers, and they are served when it has gone") {
  serves_its_peers(false);
}

TEST("driver: who waits in vain serves its neighbours, and they are served when it has gone") {
  serves_its_peers(true);
}

TEST("driver: of several that wait each hears of its own") {
  constexpr int kWaiters = 3;
  DriverPair pair(over(false), over(false));
  std::vector<std::thread> waiters;
  std::vector<std::uint32_t> senders;
  std::atomic<int> heard{0};
  std::vector<std::shared_ptr<CompletionChannel>> channels;
  for (int i = 0; i < kWaiters; ++i) {
    const auto channel = channels.emplace_back(std::make_shared<CompletionChannel>());
    CHECK_EQ(channel->open(), 0);
    const std::uint32_t sink = pair.b.driver().completion_sinks().add(channel);
    const std::uint32_t shared = pair.b.cq;
    const std::uint32_t cq = pair.b.cq =
        pair.b.call([](Adapter& adapter) { return adapter.create_cq(64); }).value;
    CHECK(pair.b.call([&](Adapter& adapter) { return adapter.attach_cq(cq, sink); }).ok());
    const std::uint32_t from = pair.a.create_qp(), to = pair.b.create_qp();
    pair.b.cq = shared;
    pair.a.connect(from, pair.b.gid(), to);
    pair.b.connect(to, pair.a.gid(), from);
    CHECK(pair.b.recv(to, {}).ok());
    CHECK(pair.b.call([&](Adapter& adapter) { return adapter.req_notify_cq(cq, 2); }).ok());
    senders.push_back(from);
    waiters.emplace_back([&pair, &heard, channel, cq] {
      if (pair.b.driver().wait_for(*channel, monotonic_ns() + kPatienceNs) != Waited::EVENT) return;
      heard += channel->pop() == cq;
    });
  }
  for (const std::uint32_t sender : senders) {
    CHECK(pair.a.send(sender, signaled()).ok());
    CHECK_EQ(pair.a.wait().status, WcStatus::SUCCESS);
  }
  for (std::thread& waiter : waiters) waiter.join();
  CHECK_EQ(heard.load(), kWaiters);
}

TEST("driver: closing ends every wait") {
  DriverHost host;
  Ear ear(host), other(host);
  std::atomic<int> closed{0};
  std::vector<std::thread> waiters;
  for (const Ear* which : {&ear, &other}) {
    waiters.emplace_back([&host, &closed, which] {
      closed += host.driver().wait_for(*which->channel, kNever) == Waited::CLOSED;
    });
  }
  // Whether they wait already or begin to while it closes.
  host.driver().close();
  for (std::thread& waiter : waiters) waiter.join();
  CHECK_EQ(closed.load(), 2);
}

TEST("driver: a channel that is closed ends the wait for it") {
  DriverHost host;
  Ear ear(host);
  std::thread waiter(
      [&] { CHECK_EQ(host.driver().wait_for(*ear.channel, kNever), Waited::EVENT); });
  ear.channel->close();
  waiter.join();
}

}  // namespace
}  // namespace softhca
