// Which messages are acknowledged when: at once, together, or with what goes the same way (IBTA
// Vol 1, 9.7.5.1.2 lets a responder coalesce).

#include <array>
#include <functional>
#include <utility>
#include <vector>

#include "tests/check.hpp"
#include "tests/simulated_pair.hpp"

namespace softhca::testing {
namespace {

struct LazyPair : Pair {
  std::uint32_t qp_a = a.qp();
  std::uint32_t qp_b = b.qp();
  std::uint64_t acks_to_a = 0;
  std::uint64_t asked_by_a = 0;

  LazyPair() : Pair(seed(), true) {
    CHECK(connect(true, qp_a, QpType::RC, qp_b, 100, 200).ok());
    CHECK(connect(false, qp_b, QpType::RC, qp_a, 200, 100).ok());
    for (int i = 0; i < 60; ++i) {
      CHECK(recv(true, qp_a, {}).ok());
      CHECK(recv(false, qp_b, {}).ok());
    }
    filter = [this](bool from_a, const Packet& packet) {
      acks_to_a += !from_a && packet.info->has(kAcknowledge);
      asked_by_a += from_a && packet.bth.ack_request;
      return true;
    };
  }
  void message(bool from_a, bool signaled) {
    SendWr wr;
    if (signaled) wr.send_flags = kSendSignaled;
    CHECK(send(from_a, from_a ? qp_a : qp_b, wr).ok());
  }
  // Sends from b what it wants to send; as if to be received by a, but that is left out.
  std::vector<Operation> leave(bool patient) {
    std::array<std::uint8_t, kMaxDatagramBytes> buffer;
    std::vector<Operation> left;
    OutgoingPacket out;
    while (b.adapter->next_packet(buffer, out, now_ns, patient)) {
      left.push_back(opcode_operation(out.datagram[0]));
    }
    return left;
  }
  // Messages of a arrive at b, which answers nothing yet.
  void arrive(int messages) {
    std::array<std::uint8_t, kMaxDatagramBytes> buffer;
    OutgoingPacket out;
    for (int i = 0; i < messages; ++i) {
      message(true, true);
      CHECK(a.adapter->next_packet(buffer, out, now_ns));
      b.adapter->receive(out.route, out.datagram, now_ns);
    }
  }
};

TEST("acks: messages that nobody waits for ask for none, and get one later") {
  LazyPair pair;
  pair.message(true, false);
  pair.run();
  CHECK_EQ(pair.asked_by_a, 1u);  // Nothing is known of the peer yet.
  pair.message(true, true);
  pair.run();
  CHECK_EQ(pair.asked_by_a, 2u);
  CHECK_EQ(pair.acks_to_a, 2u);
  for (int i = 0; i < 10; ++i) pair.message(true, false);
  const std::uint64_t before_ns = pair.now_ns;
  pair.run();
  CHECK_EQ(pair.asked_by_a, 2u);
  CHECK_EQ(pair.acks_to_a, 3u);
  CHECK(pair.now_ns - before_ns >= 200'000);
  CHECK_EQ(pair.a.adapter->counters().early_retransmits, 0u);
  CHECK_EQ(pair.a.adapter->qp_load(pair.qp_a).value.sends, 10u);  // Until one of them is signaled.
}

TEST("acks: many messages in a row ask every now and then") {
  LazyPair pair;
  pair.message(true, true);
  pair.run();
  for (int i = 0; i < 48; ++i) pair.message(true, false);
  pair.run();
  CHECK_EQ(pair.asked_by_a, 1u + 3u);
}

TEST("acks: the loss of one that nobody waits for is noticed") {
  LazyPair pair;
  pair.message(true, true);
  pair.run();
  bool lost = false;
  pair.filter = [&](bool from_a, const Packet&) { return !from_a || std::exchange(lost, true); };
  pair.message(true, false);
  pair.run();
  CHECK_EQ(pair.b.poll().size(), 2u);
  CHECK(pair.a.adapter->counters().early_retransmits > 0);
}

TEST("acks: of a patient caller they leave behind the requests that are due") {
  LazyPair pair;
  pair.arrive(3);
  CHECK(pair.leave(true).empty());
  CHECK(pair.b.adapter->holds_acks());
  pair.message(false, true);
  pair.message(false, true);
  const std::vector<Operation> left = pair.leave(true);
  CHECK(left == (std::vector{Operation::SEND_ONLY, Operation::SEND_ONLY, Operation::ACKNOWLEDGE}));
  CHECK(!pair.b.adapter->holds_acks());
}

TEST("acks: of a patient caller they leave when they are let go") {
  LazyPair pair;
  pair.arrive(1);
  CHECK(pair.leave(true).empty());
  pair.b.adapter->release_acks();
  CHECK(!pair.b.adapter->holds_acks());
  CHECK(pair.leave(false) == std::vector{Operation::ACKNOWLEDGE});
}

TEST("acks: of a patient caller they do not wait for ever") {
  LazyPair pair;
  pair.arrive(15);
  CHECK(pair.leave(true).empty());
  pair.arrive(1);
  CHECK(pair.leave(true) == std::vector{Operation::ACKNOWLEDGE});
  CHECK(!pair.b.adapter->holds_acks());
}

// Who has polled a completion may be done with the queue pair; its peer waits all the same.
TEST("acks: what is held back leaves before its queue pair falls silent") {
  const auto stop = [](QpState to) {
    return [to](LazyPair& pair) {
      QpAttr attr;
      attr.qp_state = to;
      CHECK(pair.b.adapter->modify_qp(pair.qp_b, attr, kQpState, pair.now_ns).ok());
    };
  };
  const std::function<void(LazyPair&)> ends[] = {
      [](LazyPair& pair) { CHECK(pair.b.adapter->destroy_qp(pair.qp_b).ok()); },
      stop(QpState::RESET),
      stop(QpState::ERR),
      [](LazyPair& pair) { pair.b.adapter->settle_debts(pair.now_ns); },
  };
  for (const auto& end : ends) {
    LazyPair pair;
    pair.arrive(1);
    CHECK(pair.leave(true).empty());
    end(pair);
    CHECK(pair.b.adapter->wants_driver());
    CHECK(pair.leave(true) == std::vector{Operation::ACKNOWLEDGE});
    pair.b.adapter->release_acks();
    CHECK(pair.leave(false).empty());
  }
}

TEST("acks: what nobody asked for leaves before its queue pair is gone, too") {
  LazyPair pair;
  pair.message(true, true);
  pair.run();
  pair.message(true, false);
  std::array<std::uint8_t, kMaxDatagramBytes> buffer;
  OutgoingPacket out;
  CHECK(pair.a.adapter->next_packet(buffer, out, pair.now_ns));
  pair.b.adapter->receive(out.route, out.datagram, pair.now_ns);
  CHECK(pair.leave(false).empty());
  CHECK(pair.b.adapter->destroy_qp(pair.qp_b).ok());
  CHECK(pair.leave(false) == std::vector{Operation::ACKNOWLEDGE});
}

}  // namespace
}  // namespace softhca::testing
