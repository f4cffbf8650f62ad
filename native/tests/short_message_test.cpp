// Short messages leave while they are posted, on a way of their own. It must not be possible to
// tell: the same work is given to two pairs of queue pairs, one of which has an observer and
// therefore never takes that way.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "adapter/adapter.hpp"
#include "tests/check.hpp"
#include "tests/rounds.hpp"
#include "transport/local_path.hpp"
#include "vocabulary/observer.hpp"
#include "vocabulary/random.hpp"

namespace softhca {
namespace {

constexpr std::uint64_t kSourceIova = 0x10000;
constexpr std::uint64_t kTargetIova = 0x20000;
constexpr std::size_t kBytes = 8192;
constexpr std::uint32_t kDepth = 8;

class Nobody final : public Observer {
 public:
  void posted_send(std::uint32_t, std::uint64_t, WrOpcode, std::uint64_t, bool) override {}
  void posted_receive(std::uint32_t, std::uint64_t, std::uint64_t) override {}
  void completed(std::uint32_t, std::uint64_t, WcStatus, std::uint32_t, bool) override {}
  void created(std::uint32_t, QpType, std::uint32_t, std::uint32_t, std::uint32_t) override {}
  void changed_state(std::uint32_t, QpState, QpState, std::uint32_t, std::uint32_t) override {}
  void destroyed(std::uint32_t) override {}
  void wrote(std::uint32_t, std::uint64_t, ByteView, ByteView) override {}
  void named(const NamedMemory&) override {}
  void unnamed(std::uint32_t) override {}
  void raised(EventType, std::uint32_t) override {}
};

AdapterConfig config_of(std::uint8_t host) {
  const std::uint8_t address[4] = {10, 0, 0, host};
  AdapterConfig config;
  config.gids = {Gid::from_ipv4(address)};
  config.seed = softhca::testing::seed() + host;
  config.shortcut = true;
  return config;
}

// The way from one adapter to another: packets lie there until somebody carries them over.
class Way final : public LocalPath, public LocalPaths {
 public:
  bool has_room() override { return true; }
  bool can_fetch(std::span<const MemoryPiece>) override { return false; }
  void recall(std::uint32_t) override {}
  void revoke(std::uint32_t) override {}
  LocalPath* path_to(const Gid&, const Gid&) override { return this; }
  void send(const LocalPacket& local) override {
    Carried carried{local.route, local.packet, {}};
    carried.payload.assign(local.packet.payload.begin(), local.packet.payload.end());
    carried_.push_back(std::move(carried));
  }
  bool deliver(Adapter& to, std::uint64_t now_ns) {
    if (carried_.empty()) return false;
    Carried one = std::move(carried_.front());
    carried_.pop_front();
    one.packet.payload = one.payload;
    CHECK(to.receive_local(one.route, one.packet, now_ns));
    return true;
  }

 private:
  struct Carried {
    Route route;
    Packet packet;
    std::vector<std::uint8_t> payload;
  };
  std::deque<Carried> carried_;
};

// One end of a connection: what belongs to it on its adapter.
struct End {
  Adapter* adapter = nullptr;
  std::uint32_t pd = 0;
  std::uint32_t cq = 0;
  std::uint32_t qpn = 0;
  std::vector<std::uint8_t> source = std::vector<std::uint8_t>(kBytes);
  std::vector<std::uint8_t> target = std::vector<std::uint8_t>(kBytes);
  MrInfo source_mr;
  MrInfo target_mr;

  void open(Adapter& on) {
    adapter = &on;
    pd = on.alloc_pd().value;
    cq = on.create_cq(64).value;
    for (std::size_t i = 0; i < kBytes; ++i) source[i] = static_cast<std::uint8_t>(i * 7);
    source_mr = on.reg_mr(pd, address(source), kBytes, kSourceIova, 0).value;
    target_mr = on.reg_mr(pd, address(target), kBytes, kTargetIova, 0xf).value;
    QpInit init;
    init.pd = pd;
    init.send_cq = init.recv_cq = cq;
    init.cap = {kDepth, kDepth, 2, 2, 64};
    qpn = on.create_qp(init).value;
  }
  static std::uint64_t address(const std::vector<std::uint8_t>& bytes) {
    return reinterpret_cast<std::uint64_t>(bytes.data());
  }
};

class Pair {
 public:
  Pair(bool one_adapter, Observer* observer) : observer_(observer) {
    first_ = std::make_unique<Adapter>(config_of(1));
    if (!one_adapter) second_ = std::make_unique<Adapter>(config_of(2));
    first_->set_paths(&there_);
    if (second_) second_->set_paths(&back_);
    ends[0].open(*first_);
    ends[1].open(second_ ? *second_ : *first_);
    connect();
  }
  ~Pair() {
    first_->set_paths(nullptr);
    if (second_) second_->set_paths(nullptr);
  }

  // What is observed while it connects takes the wire.
  void connect() {
    for (const End& end : ends) end.adapter->observe(nullptr);
    connect_unobserved();
    for (const End& end : ends) end.adapter->observe(observer_);
  }

  void settle() {
    for (bool more = true; more;) {
      more = first_->exchange(now_ns);
      if (!second_) continue;
      more |= second_->exchange(now_ns);
      more |= there_.deliver(*second_, now_ns);
      more |= back_.deliver(*first_, now_ns);
    }
  }
  void wait(std::uint64_t ns) {
    now_ns += ns;
    first_->advance(now_ns);
    if (second_) second_->advance(now_ns);
  }

  std::array<End, 2> ends;
  std::uint64_t now_ns = 1'000'000;

 private:
  void connect_unobserved() {
    for (int i = 0; i < 2; ++i) {
      End& end = ends[static_cast<std::size_t>(i)];
      const End& peer = ends[static_cast<std::size_t>(1 - i)];
      QpAttr attr;
      attr.qp_state = QpState::RESET;
      CHECK(end.adapter->modify_qp(end.qpn, attr, kQpState, now_ns).ok());
      attr.qp_state = QpState::INIT;
      attr.qp_access_flags = 0xf;
      modify(end, attr, kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags);
      attr.qp_state = QpState::RTR;
      attr.ah_attr.dgid = peer.adapter->config().gids[0];
      attr.path_mtu = 4;
      attr.dest_qp_num = peer.qpn;
      attr.max_dest_rd_atomic = 4;
      attr.min_rnr_timer = 12;
      modify(end, attr,
             kQpState | kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic |
                 kQpMinRnrTimer);
    }
    for (End& end : ends) {
      QpAttr attr;
      attr.qp_state = QpState::RTS;
      attr.timeout = 14;
      attr.retry_cnt = 7;
      attr.rnr_retry = 2;
      attr.max_rd_atomic = 4;
      modify(end, attr,
             kQpState | kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpSqPsn | kQpMaxQpRdAtomic);
    }
  }

  void modify(End& end, const QpAttr& attr, std::uint32_t mask) {
    CHECK(end.adapter->modify_qp(end.qpn, attr, mask, now_ns).ok());
  }

  Observer* const observer_;
  Way there_;
  Way back_;
  std::unique_ptr<Adapter> first_;
  std::unique_ptr<Adapter> second_;
};

// --- random work, the same for both

struct Sketch {
  WrOpcode opcode = WrOpcode::SEND;
  std::uint32_t flags = 0;
  std::array<std::uint32_t, 2> lengths{};
  std::uint32_t count = 1;
  std::uint64_t remote_offset = 0;
  bool wrong_rkey = false;
  bool wrong_lkey = false;
};

Sketch sketch_of(Random& random) {
  constexpr WrOpcode kOpcodes[] = {WrOpcode::SEND,          WrOpcode::SEND,
                                   WrOpcode::SEND_WITH_IMM, WrOpcode::RDMA_WRITE,
                                   WrOpcode::RDMA_WRITE,    WrOpcode::RDMA_WRITE_WITH_IMM,
                                   WrOpcode::RDMA_READ,     WrOpcode::ATOMIC_FETCH_AND_ADD};
  constexpr std::uint32_t kLengths[] = {0, 1, 3, 8, 64, 511, 1000, 1024, 1025, 2048, 3000};
  Sketch sketch;
  sketch.opcode = kOpcodes[random.below(std::size(kOpcodes))];
  const bool answered =
      sketch.opcode == WrOpcode::RDMA_READ || sketch.opcode == WrOpcode::ATOMIC_FETCH_AND_ADD;
  sketch.count = answered ? 1 : static_cast<std::uint32_t>(random.below(3));
  for (std::uint32_t& length : sketch.lengths) length = kLengths[random.below(std::size(kLengths))];
  if (random.below(2) == 0) sketch.flags |= kSendSignaled;
  if (random.below(4) == 0) sketch.flags |= kSendSolicited;
  if (random.below(8) == 0) sketch.flags |= kSendFence;
  if (!answered && random.below(4) == 0) {
    sketch.flags |= kSendInline;
    for (std::uint32_t& length : sketch.lengths) length %= 32;
  }
  if (sketch.opcode == WrOpcode::ATOMIC_FETCH_AND_ADD) sketch.lengths[0] = 8;
  sketch.remote_offset = random.below(64) * 8;
  if (random.below(64) == 0) sketch.remote_offset = kBytes;
  sketch.wrong_rkey = random.below(96) == 0;
  sketch.wrong_lkey = random.below(96) == 0;
  return sketch;
}

SendWr request_of(const Sketch& sketch, std::uint64_t wr_id, const End& from, const End& to) {
  SendWr wr;
  wr.wr_id = wr_id;
  wr.opcode = sketch.opcode;
  wr.send_flags = sketch.flags;
  wr.immediate = static_cast<std::uint32_t>(wr_id * 3);
  wr.remote_address = kTargetIova + sketch.remote_offset;
  wr.rkey = to.target_mr.rkey ^ (sketch.wrong_rkey ? 1u : 0u);
  wr.compare_add = 1;
  const bool lands =
      sketch.opcode == WrOpcode::RDMA_READ || sketch.opcode == WrOpcode::ATOMIC_FETCH_AND_ADD;
  const bool is_inline = (sketch.flags & kSendInline) != 0;
  for (std::uint32_t i = 0; i < sketch.count; ++i) {
    const std::uint64_t at = is_inline ? End::address(from.source)
                             : lands   ? kTargetIova + 4096
                                       : kSourceIova;
    const std::uint32_t lkey = lands ? from.target_mr.lkey : from.source_mr.lkey;
    wr.sges.push_back(
        {at + 16 * i, sketch.lengths[i], lkey ^ (sketch.wrong_lkey && !is_inline ? 1u : 0u)});
  }
  return wr;
}

bool same(const Completion& one, const Completion& other) {
  return one.wr_id == other.wr_id && one.status == other.status && one.opcode == other.opcode &&
         one.byte_len == other.byte_len && one.wc_flags == other.wc_flags &&
         one.immediate_or_rkey == other.immediate_or_rkey && one.is_receive == other.is_receive &&
         one.solicited == other.solicited && one.reason == other.reason &&
         one.by_peer == other.by_peer && one.psn == other.psn && one.key == other.key &&
         one.address == other.address && one.length == other.length &&
         one.timestamp_ns == other.timestamp_ns;
}

class Comparison {
 public:
  Comparison(bool one_adapter, std::uint64_t seed)
      : random_(seed), short_(one_adapter, nullptr), general_(one_adapter, &nobody_) {}

  void step() {
    const std::size_t side = random_.below(2);
    switch (random_.below(8)) {
      case 0:
      case 1:
      case 2:
        receive(side);
        break;
      case 3: {
        const std::uint64_t ns = random_.below(2'000'000);
        short_.wait(ns);
        general_.wait(ns);
        break;
      }
      default:
        send(side);
        break;
    }
    short_.settle();
    general_.settle();
    compare();
  }

  std::uint64_t succeeded = 0;
  std::uint64_t failed = 0;

 private:
  void receive(std::size_t side) {
    const std::uint32_t length = static_cast<std::uint32_t>(random_.below(16) == 0 ? 10 : 6200);
    ++wr_id_;
    const auto post = [&](Pair& pair) {
      End& end = pair.ends[side];
      RecvWr wr;
      wr.wr_id = wr_id_;
      wr.sges = {{kTargetIova, length, end.target_mr.lkey}};
      const RecvWr* const list[] = {&wr};
      std::size_t posted = 0;
      return end.adapter->post_recv(end.qpn, list, posted, pair.now_ns).error;
    };
    CHECK_EQ(post(short_), post(general_));
  }

  void send(std::size_t side) {
    std::vector<Sketch> sketches(1 + random_.below(3));
    // What is done while a list is posted gives its slots back earlier.
    const End& end = general_.ends[side];
    if (end.adapter->qp_load(end.qpn).value.sends + sketches.size() > kDepth) {
      // Unsignaled requests may have filled the queue for good.
      if (random_.below(8) == 0) reconnect();
      return;
    }
    for (Sketch& sketch : sketches) sketch = sketch_of(random_);
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
    bool broken = false;
    for (std::size_t side = 0; side < 2; ++side) {
      const End& one = short_.ends[side];
      const End& other = general_.ends[side];
      compare_completions(one, other);
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
    short_.connect();
    general_.connect();
  }

  void compare_completions(const End& one, const End& other) {
    std::vector<Completion> mine(64);
    std::vector<Completion> theirs(64);
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
  Pair short_;
  Pair general_;
  std::uint64_t wr_id_ = 0;
};

void compare_for(bool one_adapter) {
  const std::size_t rounds = testing::rounds(20'000);
  Comparison comparison(one_adapter, testing::seed());
  for (std::size_t round = 0; round < rounds; ++round) comparison.step();
  // Both were seen, often.
  CHECK(comparison.succeeded > rounds / 4);
  CHECK(comparison.failed > rounds / 200);
}

TEST("short messages: one that finds a receive has completed when it has been posted") {
  Pair pair(true, nullptr);
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

TEST("short messages: nobody can tell, within an adapter") { compare_for(true); }

TEST("short messages: nobody can tell, between two adapters") { compare_for(false); }

}  // namespace
}  // namespace softhca
