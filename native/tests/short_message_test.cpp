// Short messages leave while they are posted, or into a datagram, on a way of their own, and so do
// packets inside long ones. It must not be possible to tell: the same work is given to two pairs of
// queue pairs, one of which has an observer and therefore never takes that way.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/check.hpp"
#include "tests/rounds.hpp"
#include "tests/short_message_pair.hpp"
#include "tests/short_message_work.hpp"

namespace softhca {
namespace {

using namespace softhca::testing::twins;

class Comparison {
 public:
  Comparison(Between between, std::uint64_t seed)
      : random_(seed),
        lazy_acks_(random_.below(2) == 0),
        short_(between, lazy_acks_, nullptr),
        general_(between, lazy_acks_, &nobody_) {}

  void step() {
    const std::size_t side = random_.below(2);
    if (random_.below(4) == 0) arm(random_.below(2));
    if (random_.below(48) == 0) change(random_.below(2));
    switch (random_.below(8)) {
      case 0:
      case 1:
      case 2:
        receive(side);
        break;
      case 3: {
        const std::uint64_t ns = random_.below(random_.below(8) == 0 ? 200'000'000 : 2'000'000);
        short_.wait(ns);
        general_.wait(ns);
        break;
      }
      default:
        send(side);
        break;
    }
    const int most = random_.below(2) == 0 ? 1 << 20 : static_cast<int>(random_.below(4));
    const std::uint64_t seed = random_.next();
    short_.settle(most, is_bad_, seed);
    general_.settle(most, is_bad_, seed);
    compare();
  }

  std::uint64_t succeeded = 0;
  std::uint64_t failed = 0;

 private:
  // Whom a completion wakes.
  void arm(std::size_t side) {
    const std::uint32_t how = random_.below(2) == 0 ? kNotifySolicited : kNotifyNextComp;
    for (Pair* pair : {&short_, &general_}) {
      const End& end = pair->ends[side];
      CHECK(end.adapter->attach_cq(end.cq, 1).ok());
      CHECK(end.adapter->req_notify_cq(end.cq, how).ok());
    }
  }

  // A verb in the middle of everything.
  void change(std::size_t side) {
    const std::uint64_t which = random_.below(8);
    const std::uint32_t rights = static_cast<std::uint32_t>(random_.below(16));
    std::array<int, 2> errors{};
    std::array<std::uint32_t, 2> keys{};
    for (const std::size_t way : {0, 1}) {
      Pair& pair = way == 0 ? short_ : general_;
      End& end = pair.ends[side];
      QpAttr attr;
      attr.qp_access_flags = rights;
      std::uint32_t mask = kQpState;
      switch (which) {
        case 0:
          attr.qp_state = QpState::ERR;
          break;
        case 1:
        case 2:
          attr.qp_state = QpState::SQD;
          attr.en_sqd_async_notify = true;
          mask |= kQpEnSqdAsyncNotify;
          break;
        case 3:
        case 4:
        case 5:
          attr.qp_state = QpState::RTS;
          if (which == 5) mask |= kQpAccessFlags;
          break;
        default: {
          MrInfo& mr = which == 6 ? end.target_mr : end.source_mr;
          const auto& bytes = which == 6 ? end.target : end.source;
          errors[way] = end.adapter->dereg_mr(mr.handle).error;
          if (errors[way] != 0) continue;
          const Result<MrInfo> again =
              end.adapter->reg_mr(end.pd, End::address(bytes), kBytes,
                                  which == 6 ? kTargetIova : kSourceIova, which == 6 ? 0xf : 0);
          CHECK(again.ok());
          mr = again.value;
          keys[way] = mr.rkey;
          continue;
        }
      }
      errors[way] = end.adapter->modify_qp(end.qpn, attr, mask, pair.now_ns).error;
    }
    CHECK_EQ(errors[0], errors[1]);
    CHECK_EQ(keys[0], keys[1]);
  }

  void compare_events(const End& one, const End& other) {
    AsyncEvent mine;
    AsyncEvent theirs;
    while (one.adapter->next_event(mine)) {
      CHECK(other.adapter->next_event(theirs));
      CHECK_EQ(mine.type, theirs.type);
    }
    CHECK(!other.adapter->next_event(theirs));
    CompletionEvent my_event;
    CompletionEvent their_event;
    while (one.adapter->next_completion_event(my_event)) {
      CHECK(other.adapter->next_completion_event(their_event));
      CHECK_EQ(my_event.cq, their_event.cq);
    }
    CHECK(!other.adapter->next_completion_event(their_event));
  }

  void receive(std::size_t side) {
    const std::uint32_t length = static_cast<std::uint32_t>(random_.below(16) == 0 ? 10 : 6200);
    // Of several entries, or none.
    const std::size_t pieces = random_.below(8) == 0 ? random_.below(3) : 1;
    const std::uint32_t wrong = random_.below(128) == 0 ? 1 : 0;
    ++wr_id_;
    const auto post = [&](Pair& pair) {
      End& end = pair.ends[side];
      RecvWr wr;
      wr.wr_id = wr_id_;
      wr.sges.assign(pieces, {kTargetIova, length, end.target_mr.lkey ^ wrong});
      const RecvWr* const list[] = {&wr};
      std::size_t posted = 0;
      return end.adapter->post_recv(end.qpn, list, posted, pair.now_ns).error;
    };
    CHECK_EQ(post(short_), post(general_));
  }

  void send(std::size_t side) {
    std::vector<Sketch> sketches(1 + random_.below(random_.below(8) == 0 ? 24 : 3));
    // What is done while a list is posted gives its slots back earlier.
    const End& end = general_.ends[side];
    if (end.adapter->qp_load(end.qpn).value.sends + sketches.size() > kDepth) {
      // Unsignaled requests may have filled the queue for good.
      if (random_.below(8) == 0) reconnect();
      return;
    }
    for (Sketch& sketch : sketches) sketch = sketch_of(random_, rarely_signaled_);
    // Long lists are mostly of one kind.
    const bool is_run = random_.below(2) == 0;
    const bool reads = is_run && random_.below(4) == 0;
    for (Sketch& sketch : sketches) {
      if (!is_run || random_.below(16) == 0) continue;
      sketch = plain_sketch_of(random_, rarely_signaled_);
      if (reads) sketch.opcode = WrOpcode::RDMA_READ;
    }
    const auto post = [&](Pair& pair, std::size_t& posted) {
      End& from = pair.ends[side];
      std::vector<SendWr> wrs;
      std::uint64_t wr_id = wr_id_;
      for (const Sketch& sketch : sketches) {
        wrs.push_back(request_of(sketch, ++wr_id, from, pair.ends[1 - side]));
      }
      std::vector<const SendWr*> list;
      for (const SendWr& wr : wrs) list.push_back(&wr);
      return from.adapter->post_send(from.qpn, list, posted, pair.now_ns).error;
    };
    std::size_t one = 0;
    std::size_t other = 0;
    CHECK_EQ(post(short_, one), post(general_, other));
    CHECK_EQ(one, other);
    wr_id_ += sketches.size();
  }

  void compare() {
    bool broken = random_.below(256) == 0;
    CHECK(short_.take_seen() == general_.take_seen());
    CHECK(short_.take_datagrams() == general_.take_datagrams());
    for (std::size_t side = 0; side < 2; ++side) {
      const End& one = short_.ends[side];
      const End& other = general_.ends[side];
      compare_completions(one, other);
      compare_events(one, other);
      CHECK(one.target == other.target);
      QpInit init;
      const QpAttr mine = one.adapter->query_qp(one.qpn, init).value;
      const QpAttr theirs = other.adapter->query_qp(other.qpn, init).value;
      CHECK_EQ(mine.qp_state, theirs.qp_state);
      CHECK_EQ(mine.sq_psn, theirs.sq_psn);
      CHECK_EQ(mine.rq_psn, theirs.rq_psn);
      const Counters counted = one.adapter->qp_counters(one.qpn).value;
      const Counters expected = other.adapter->qp_counters(other.qpn).value;
      CHECK(std::memcmp(&counted, &expected, sizeof counted) == 0);
      broken |= mine.qp_state == QpState::ERR;
    }
    if (!broken) return;
    ++failed;
    reconnect();
  }

  void reconnect() {
    constexpr std::uint32_t kRights[] = {0xf, 0xf, 0xf, 0xf, 0x1, 0xb, 0x5};
    const std::uint32_t rights = kRights[random_.below(std::size(kRights))];
    is_bad_ = random_.below(2) == 0;
    rarely_signaled_ = random_.below(4) == 0;
    const auto path_mtu = static_cast<std::uint8_t>(2 + random_.below(3));
    const bool lends = random_.below(2) == 0;
    const auto resources = static_cast<std::uint8_t>(random_.below(8) == 0 ? 0 : 4);
    // Soon they wrap, or pass half of all.
    constexpr std::uint32_t kFirst[] = {0, 0xfffff0, 0x7ffff0};
    const std::uint32_t first_psn = kFirst[random_.below(std::size(kFirst))];
    short_.connect(rights, path_mtu, lends, resources, first_psn);
    general_.connect(rights, path_mtu, lends, resources, first_psn);
  }

  void compare_completions(const End& one, const End& other) {
    std::vector<Completion> mine(kCompletions);
    std::vector<Completion> theirs(kCompletions);
    mine.resize(one.adapter->poll_cq(one.cq, mine).value);
    theirs.resize(other.adapter->poll_cq(other.cq, theirs).value);
    CHECK_EQ(mine.size(), theirs.size());
    for (std::size_t i = 0; i < mine.size(); ++i) {
      CHECK(same(mine[i], theirs[i]));
      succeeded += mine[i].status == WcStatus::SUCCESS;
    }
  }

  Nobody nobody_;
  Random random_;
  const bool lazy_acks_;
  bool is_bad_ = false;  // The ways lose, repeat and damage packets.
  bool rarely_signaled_ = false;
  Pair short_;
  Pair general_;
  std::uint64_t wr_id_ = 0;
};

void compare_for(Between between) {
  const std::size_t rounds = testing::rounds(20'000);
  Comparison comparison(between, testing::seed());
  for (std::size_t round = 0; round < rounds; ++round) comparison.step();
  // Both were seen, often.
  CHECK(comparison.succeeded > rounds / 4);
  CHECK(comparison.failed > rounds / 200);
}

TEST("short messages: one that finds a receive has completed when it has been posted") {
  Pair pair(Between::NOTHING, false, nullptr);
  pair.settle();
  RecvWr receive;
  receive.sges = {{kTargetIova, 64, pair.ends[1].target_mr.lkey}};
  const RecvWr* const receives[] = {&receive};
  Sketch sketch;
  sketch.flags = kSendSignaled;
  sketch.lengths = {64, 0};
  const SendWr send = request_of(sketch, 1, pair.ends[0], pair.ends[1]);
  const SendWr* const sends[] = {&send};
  std::size_t posted = 0;
  Adapter& adapter = *pair.ends[0].adapter;
  CHECK(adapter.post_recv(pair.ends[1].qpn, receives, posted, pair.now_ns).ok());
  CHECK(adapter.post_send(pair.ends[0].qpn, sends, posted, pair.now_ns).ok());
  std::array<Completion, 2> room;
  CHECK_EQ(adapter.poll_cq(pair.ends[1].cq, room).value, 1u);
  CHECK_EQ(adapter.poll_cq(pair.ends[0].cq, room).value, 1u);
  CHECK_EQ(adapter.qp_counters(pair.ends[0].qpn).value.rcvd_pkts, 1u);
}

// Of a list that comes together, as many complete as there is room for; then the queue overflows.
TEST("short messages: those that fill a completion queue end as they do one by one") {
  constexpr std::uint32_t kRoom = 5;
  for (std::uint32_t sent = 1; sent < 12; ++sent) {
    Nobody nobody;
    std::array<std::vector<Completion>, 2> completed;
    std::array<QpState, 2> states{};
    std::array<Counters, 2> counted;
    for (const std::size_t way : {0, 1}) {
      Pair pair(Between::WAYS, true, way == 0 ? nullptr : &nobody);
      pair.settle();
      End& from = pair.ends[0];
      End& to = pair.ends[1];
      CHECK(to.adapter->resize_cq(to.cq, kRoom).ok());
      RecvWr receive;
      receive.sges = {{kTargetIova, 64, to.target_mr.lkey}};
      const std::vector<const RecvWr*> receives(sent, &receive);
      Sketch sketch;
      sketch.lengths = {64, 0};
      const SendWr send = request_of(sketch, 1, from, to);
      const std::vector<const SendWr*> sends(sent, &send);
      std::size_t posted = 0;
      CHECK(to.adapter->post_recv(to.qpn, receives, posted, pair.now_ns).ok());
      posted = 0;
      CHECK(from.adapter->post_send(from.qpn, sends, posted, pair.now_ns).ok());
      pair.settle();
      completed[way].resize(sent);
      completed[way].resize(to.adapter->poll_cq(to.cq, completed[way]).value);
      QpInit init;
      states[way] = to.adapter->query_qp(to.qpn, init).value.qp_state;
      counted[way] = to.adapter->qp_counters(to.qpn).value;
    }
    CHECK_EQ(states[0], sent <= kRoom ? QpState::RTS : QpState::ERR);
    CHECK_EQ(states[0], states[1]);
    CHECK(std::ranges::equal(completed[0], completed[1], same));
    CHECK_EQ(completed[0].size(), std::min(sent, kRoom));
    CHECK_EQ(counted[0].rx_send_requests, counted[1].rx_send_requests);
    CHECK_EQ(counted[0].rcvd_pkts, counted[1].rcvd_pkts);
  }
}

// In one call, and with equal PSNs.
TEST("short messages: those of several queue pairs that come together are each for its own") {
  constexpr std::size_t kPairs = 3;
  Pair pair(Between::WAYS, true, nullptr);
  std::array<std::array<End, 2>, kPairs> more;
  for (auto& ends : more) {
    for (std::size_t side = 0; side < 2; ++side) ends[side].open(*pair.ends[side].adapter);
    connect_ends(ends, 0xf, 4, pair.now_ns);
  }
  pair.settle();
  Random random(testing::seed());
  std::array<std::uint64_t, kPairs> sent{};
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < 16; ++i) {
      const std::size_t which = random.below(kPairs);
      auto& [from, to] = more[which];
      std::size_t posted = 0;
      RecvWr receive;
      receive.wr_id = which << 32 | sent[which];
      receive.sges = {{kTargetIova, 64, to.target_mr.lkey}};
      const RecvWr* const receives[] = {&receive};
      CHECK(to.adapter->post_recv(to.qpn, receives, posted, pair.now_ns).ok());
      Sketch sketch;
      sketch.opcode = WrOpcode::SEND_WITH_IMM;
      sketch.flags = kSendSignaled;
      sketch.lengths = {static_cast<std::uint32_t>(random.below(65)), 0};
      SendWr send = request_of(sketch, receive.wr_id, from, to);
      send.immediate = static_cast<std::uint32_t>(which << 16 | sent[which]);
      const SendWr* const sends[] = {&send};
      CHECK(from.adapter->post_send(from.qpn, sends, posted, pair.now_ns).ok());
      ++sent[which];
    }
    pair.settle();
    for (std::size_t which = 0; which < kPairs; ++which) {
      std::array<Completion, 17> came;
      const End& to = more[which][1];
      const std::size_t count = to.adapter->poll_cq(to.cq, came).value;
      for (std::size_t i = 0; i < count; ++i) {
        const std::uint64_t number = sent[which] - count + i;
        CHECK_EQ(came[i].status, WcStatus::SUCCESS);
        CHECK_EQ(came[i].wr_id, which << 32 | number);
        CHECK_EQ(came[i].immediate_or_rkey, which << 16 | number);
      }
      std::array<Completion, 17> went;
      const End& from = more[which][0];
      CHECK_EQ(from.adapter->poll_cq(from.cq, went).value, count);
    }
  }
  for (std::size_t which = 0; which < kPairs; ++which) {
    const End& to = more[which][1];
    CHECK_EQ(to.adapter->qp_counters(to.qpn).value.rx_send_requests, sent[which]);
  }
}

TEST("short messages: nobody can tell, within an adapter") { compare_for(Between::NOTHING); }

TEST("short messages: nobody can tell, between two adapters") { compare_for(Between::WAYS); }

TEST("short messages: nobody can tell, over the wire") { compare_for(Between::WIRE); }

}  // namespace
}  // namespace softhca
