// A program that writes anything into its mapped queues while they are in use, beside one that does
// nothing wrong. Longer: SOFTHCA_TEST_ROUNDS=1000000.

#include <array>
#include <atomic>
#include <thread>

#include "tests/check.hpp"
#include "tests/mapped_program.hpp"
#include "tests/rounds.hpp"

namespace softhca::testing {
namespace {

// Registered bytes between bytes that are not.
struct Guarded {
  static constexpr std::size_t kGuard = 4096;
  static constexpr std::size_t kBytes = 16384;
  std::vector<std::uint8_t> bytes = std::vector<std::uint8_t>(kGuard + kBytes + kGuard, 0xa5);
  MrInfo mr;

  explicit Guarded(Host& host) {
    mr = host.adapter->reg_mr(host.pd, address(), kBytes, address(), 0x1f).value;
  }
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(bytes.data()) + kGuard; }
  void check_guards() const {
    for (std::size_t at = 0; at < kGuard; ++at) {
      if (bytes[at] != 0xa5 || bytes[kGuard + kBytes + at] != 0xa5) {
        CHECK_EQ(bytes[at], 0xa5);
        CHECK_EQ(bytes[kGuard + kBytes + at], 0xa5);
      }
    }
  }
};

// Two hosts; on each a hostile program and an honest one, whose queue pairs are connected.
struct Scene : Pair {
  Program honest_left{*this, true};
  Program honest_right{*this, false};
  Guarded honest_from{a};
  Guarded honest_to{b};
  ProgramQp giver = honest_left.qp(QpType::RC);
  ProgramQp taker = honest_right.qp(QpType::RC);

  Program left{*this, true, 63};
  Program right{*this, false, 63};
  Guarded left_bytes{a};
  Guarded right_bytes{b};
  std::uint32_t srq = b.adapter->create_srq(b.pd, {15, Program::kSges, 0}, 0, 0).value;
  ProgramRing srq_ring{right.file, Program::kReceiveElement, 16};
  std::uint32_t left_ah = 0;
  struct Couple {
    QpType type;
    ProgramQp a;
    ProgramQp b;
  };
  std::vector<Couple> couples;
  bool overflowed = false;

  explicit Scene(std::uint64_t scene_seed) : Pair(scene_seed) {
    CHECK(b.adapter->feed_srq(srq, std::make_shared<MappedReceiveQueue>(srq_ring.ring)).ok());
    AhAttr to_right;
    to_right.dgid = b.adapter->config().gids[0];
    left_ah = a.adapter->create_ah(a.pd, to_right).value;
    couples.push_back({QpType::RC, left.qp(QpType::RC), right.qp(QpType::RC)});
    couples.push_back({QpType::RC, left.qp(QpType::RC), right.qp(QpType::RC, srq)});
    couples.push_back({QpType::UC, left.qp(QpType::UC), right.qp(QpType::UC)});
    couples.push_back({QpType::UD, left.qp(QpType::UD), right.qp(QpType::UD)});
    CHECK(connect(true, giver.qpn, QpType::RC, taker.qpn, 1, 2).ok());
    CHECK(connect(false, taker.qpn, QpType::RC, giver.qpn, 2, 1).ok());
    for (Couple& couple : couples) {
      revive(couple);
    }
  }

  void revive(Couple& couple) {
    QpAttr attr;
    attr.qp_state = QpState::RESET;
    CHECK(a.adapter->modify_qp(couple.a.qpn, attr, kQpState, now_ns).ok());
    CHECK(b.adapter->modify_qp(couple.b.qpn, attr, kQpState, now_ns).ok());
    CHECK(connect(true, couple.a.qpn, couple.type, couple.b.qpn, 7, 8).ok());
    CHECK(connect(false, couple.b.qpn, couple.type, couple.a.qpn, 8, 7).ok());
  }

  void serve_honest() {
    Program::post_receive(*taker.rq, 5, {{honest_to.address(), 5000, honest_to.mr.lkey}});
    Program::begin_send(giver, 6, WrOpcode::SEND,
                        {{honest_from.address(), 5000, honest_from.mr.lkey}});
    CHECK(honest_left.end_send(giver).ok());
    std::vector<ProgramCompletion> sent;
    for (int at = 0; at < 100000 && sent.empty(); ++at) {
      step();
      sent = honest_left.poll();
    }
    CHECK_EQ(sent.size(), 1u);
    CHECK(sent[0].status == WcStatus::SUCCESS);
    CHECK_EQ(honest_right.poll().size(), 1u);
    for (const Guarded* each : {&honest_from, &honest_to, &left_bytes, &right_bytes}) {
      each->check_guards();
    }
  }
};

class Scribbler {
 public:
  Scribbler(Scene& scene, std::uint64_t own_seed) : scene_(scene), random_(own_seed) {}

  void one_round() {
    Scene::Couple& couple = scene_.couples[random_.below(scene_.couples.size())];
    rude_ = random_.below(4) == 0;
    switch (random_.below(16)) {
      case 0:
        scribble(*any_ring(couple));
        break;
      case 1:
        store_index(*any_ring(couple));
        break;
      case 2:
      case 3:
      case 4:
      case 5:
        receive(couple);
        break;
      default:
        revive_failed(couple);
        send(couple);
    }
    scene_.run(4);
    poll();
  }

  // Anything but what our own side of the program goes by.
  void scribble_anywhere() {
    const ProgramRing& ring = *any_ring(scene_.couples[random_.below(scene_.couples.size())]);
    const std::uint64_t words = ring.ring->bytes() / 4;
    ring.store(8 + random_.below(words - 2) * 4, odd_number());
  }

 private:
  bool wrong() { return rude_ && random_.below(4) == 0; }
  std::uint32_t odd_number() {
    static constexpr std::array<std::uint32_t, 12> kOdd = {
        0, 1, 2, 7, 8, 15, 16, 0x7fffffff, 0x80000000, 0xfffffff0, 0xffffffff, 0x10000};
    return random_.below(2) == 0 ? kOdd[random_.below(kOdd.size())]
                                 : static_cast<std::uint32_t>(random_.next());
  }
  ProgramRing* any_ring(Scene::Couple& couple) {
    ProgramRing* const rings[] = {
        couple.a.sq.get(),         couple.b.sq.get(),
        couple.a.rq.get(),         couple.b.rq ? couple.b.rq.get() : &scene_.srq_ring,
        scene_.left.cq_ring.get(), scene_.right.cq_ring.get()};
    return rings[random_.below(std::size(rings))];
  }
  void scribble(ProgramRing& ring) {
    const std::uint64_t at = random_.below(ring.ring->bytes() / 4) * 4;
    // What says how large the ring is is left alone now and then, for our own side to go on.
    ring.store(at, odd_number());
    ring.store(0, true_log2(ring));
    ring.store(4, ring.ring->mask());
  }
  static std::uint32_t true_log2(const ProgramRing& ring) {
    return static_cast<std::uint32_t>(__builtin_ctz(ring.ring->element_bytes()));
  }
  void store_index(ProgramRing& ring) {
    static constexpr std::size_t kPlaces[] = {0, 4, 128, 256};
    const std::size_t place = kPlaces[random_.below(4)];
    ring.store(place, odd_number());
    if (place < 8) {
      // The adapter must not believe it; the program may again.
      static_cast<void>(scene_.left.ring(scene_.couples[0].a).ok());
      ring.store(0, true_log2(ring));
      ring.store(4, ring.ring->mask());
    }
  }
  Sge sge(const Guarded& memory) {
    if (wrong()) {
      return {random_.next(), odd_number(), static_cast<std::uint32_t>(random_.next())};
    }
    const std::uint64_t at = random_.below(Guarded::kBytes / 2);
    const std::uint64_t length = wrong() ? odd_number() : random_.below(Guarded::kBytes / 2);
    return {memory.address() + at, static_cast<std::uint32_t>(length), memory.mr.lkey};
  }
  void receive(Scene::Couple& couple) {
    ProgramRing& ring = couple.b.rq ? *couple.b.rq : scene_.srq_ring;
    const std::uint32_t at = ring.producer() & ring.ring->mask();
    std::uint8_t* element = ring.element(at);
    put_field(element, 0, random_.next());
    put_field(element, 28, wrong() ? odd_number() : 1);
    const Sge entry = sge(scene_.right_bytes);
    put_field(element, 40, entry.address);
    put_field(element, 48, entry.length);
    put_field(element, 52, entry.lkey);
    ring.store(128, at + 1);
  }
  std::uint32_t some_opcode(QpType type) {
    static constexpr std::array kOpcodes = {
        WrOpcode::SEND,      WrOpcode::SEND_WITH_IMM,       WrOpcode::RDMA_WRITE,
        WrOpcode::RDMA_READ, WrOpcode::RDMA_WRITE_WITH_IMM, WrOpcode::ATOMIC_FETCH_AND_ADD,
        WrOpcode::BIND_MW,   WrOpcode::LOCAL_INV,           WrOpcode::ATOMIC_WRITE,
        WrOpcode::FLUSH};
    if (wrong()) {
      return random_.below(2) == 0 ? odd_number()
                                   : static_cast<std::uint32_t>(kOpcodes[random_.below(10)]);
    }
    const std::size_t known = type == QpType::RC ? 6 : type == QpType::UC ? 3 : 2;
    return static_cast<std::uint32_t>(kOpcodes[random_.below(known)]);
  }
  void send(Scene::Couple& couple) {
    ProgramQp& qp = couple.a;
    const std::uint32_t at = qp.sq->producer() & qp.sq->ring->mask();
    std::uint8_t* element = qp.sq->element(at);
    std::memset(element, 0, kSendElementHeader);
    const std::uint32_t opcode = some_opcode(couple.type);
    const bool atomic = opcode == static_cast<std::uint32_t>(WrOpcode::ATOMIC_FETCH_AND_ADD);
    const bool is_inline = opcode <= 3 && random_.below(4) == 0;
    put_field(element, 0, random_.next());
    put_field(element, 12, opcode);
    put_field(element, 16, static_cast<std::uint32_t>(random_.below(8)) | (is_inline ? 8u : 0u));
    put_field(element, 24, scene_.right_bytes.address() + random_.below(Guarded::kBytes / 16) * 8);
    put_field(element, 32, wrong() ? odd_number() : scene_.right_bytes.mr.rkey);
    put_field(element, 48, scene_.right_bytes.mr.rkey);
    if (couple.type == QpType::UD) {
      put_field(element, 24, wrong() ? odd_number() : couple.b.qpn);
      put_field<std::uint32_t>(element, 28, 0x11111111);
      put_field(element, 36, wrong() ? odd_number() : scene_.left_ah);
    }
    Sge entry = sge(scene_.left_bytes);
    if (!rude_) {
      entry.length = atomic ? 8 : is_inline ? entry.length % 64 : entry.length % 3000;
      entry.length = couple.type == QpType::UD ? entry.length % 1000 : entry.length;
    }
    put_field(element, 184, wrong() ? odd_number() : entry.length);
    put_field(element, 196, wrong() ? odd_number() : is_inline ? 0u : 1u);
    put_field(element, 208, entry.address);
    put_field(element, 216, entry.length);
    put_field(element, 220, entry.lkey);
    qp.sq->store(128, wrong() ? odd_number() : at + 1);
    static_cast<void>(scene_.left.ring(qp).ok());
  }
  void poll() {
    for (Program* program : {&scene_.left, &scene_.right}) {
      const bool wrong = rude_ && random_.below(32) == 0;
      program->cq_ring->store(256, wrong ? odd_number() : program->cq_ring->producer());
    }
    AsyncEvent event;
    while (scene_.a.adapter->next_event(event) || scene_.b.adapter->next_event(event)) {
      scene_.overflowed = scene_.overflowed || event.type == EventType::CQ_ERR;
    }
  }
  void revive_failed(Scene::Couple& couple) {
    QpInit init;
    const bool failed =
        scene_.a.adapter->query_qp(couple.a.qpn, init).value.qp_state != QpState::RTS ||
        scene_.b.adapter->query_qp(couple.b.qpn, init).value.qp_state != QpState::RTS;
    if (random_.below(failed ? 4 : 200) == 0) {
      scene_.revive(couple);
    }
  }

  Scene& scene_;
  Random random_;
  bool rude_ = false;  // This round.
};

constexpr std::uint64_t kPerScene = 1000;

TEST("uabi: whatever a program writes into its queues harms nobody else") {
  const std::uint64_t wanted = rounds(20000);
  for (std::uint64_t done = 0; done < wanted;) {
    Scene scene(seed() + done);
    Scribbler scribbler(scene, seed() ^ done);
    // A queue that overflowed is dead for good.
    for (std::uint64_t at = 0; at < kPerScene && !scene.overflowed; ++at, ++done) {
      scribbler.one_round();
    }
    scene.serve_honest();
  }
}

TEST("uabi: nor if it writes at the very moment when they are read") {
  const std::uint64_t wanted = rounds(20000) / 4;
  for (std::uint64_t done = 0; done < wanted;) {
    Scene scene(seed() + done);
    Scribbler scribbler(scene, seed() ^ done);
    std::atomic<bool> over{false};
    std::thread meanwhile([&, chance = ~seed() ^ done] {
      Scribbler other(scene, chance);
      while (!over.load()) {
        other.scribble_anywhere();
        std::this_thread::yield();
      }
    });
    for (std::uint64_t at = 0; at < kPerScene && !scene.overflowed; ++at, ++done) {
      scribbler.one_round();
    }
    over.store(true);
    meanwhile.join();
    scene.serve_honest();
  }
}

}  // namespace
}  // namespace softhca::testing
