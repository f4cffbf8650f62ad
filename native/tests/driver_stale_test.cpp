// Nothing stale: regions come and go with their memory under fire from their owner and from peers,
// and nobody ever sees or changes a mapping that his key was not for.
//
// 100,000 rounds: SOFTHCA_TEST_ROUNDS=100000 build/native/softhca_tests "nothing stale"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "driver/invalidation/handles.hpp"
#include "tests/driver_hosts.hpp"
#include "tests/invalidation_ground.hpp"
#include "vocabulary/random.hpp"

namespace softhca::testing {
namespace {

constexpr std::size_t kWorkers = 3;
constexpr std::size_t kPeers = 2;
constexpr std::size_t kPages = 2;
constexpr std::size_t kWords = 16;  // Of one access.
constexpr std::uint32_t kAccess = 0xf | kAccessMwBind;
// What fills mappings that nobody registers.
constexpr std::uint64_t kForeign = 0xf0f0'f0f0'f0f0'f0f0;

// What a round fills its mapping with, and what who has its key writes there.
std::uint64_t stamp_of(std::size_t worker, std::uint64_t round) {
  return std::uint64_t{1} << 60 | static_cast<std::uint64_t>(worker) << 48 | round;
}
std::uint64_t mark_of(std::uint64_t stamp) { return stamp | std::uint64_t{1} << 61; }

// Bytes may be of the round that the key is for, or of a mapping that its owner has not filled yet.
bool belongs(std::uint64_t word, std::uint64_t stamp) {
  return word == stamp || word == mark_of(stamp) || word == 0;
}

// A connected pair of queue pairs with a completion queue and a buffer of its own at each end.
class Line {
 public:
  Line(DriverHost& a, DriverHost& b) : ends_{End(a), End(b)} {}

  struct End {
    explicit End(DriverHost& of) : host(of) {
      cq = host.call([](Adapter& adapter) { return adapter.create_cq(256); }).value;
      QpInit init;
      init.pd = host.pd;
      init.send_cq = init.recv_cq = cq;
      init.cap = {16, 16, 2, 2, 0};
      qpn = host.call([&](Adapter& adapter) { return adapter.create_qp(init); }).value;
      const auto address = reinterpret_cast<std::uint64_t>(words.data());
      mr = host.call([&](Adapter& adapter) {
                 return adapter.reg_mr(host.pd, address, kWords * 8, address, 0xf);
               })
               .value;
    }

    DriverHost& host;
    std::uint32_t cq = 0;
    std::uint32_t qpn = 0;
    std::vector<std::uint64_t> words = std::vector<std::uint64_t>(kWords);
    MrInfo mr;
  };
  End& a() { return ends_[0]; }
  End& b() { return ends_[1]; }

  // PSNs of their own for each connection, so that what is late from an earlier one is not taken.
  void connect(Random& random) {
    const std::uint32_t psn[2] = {static_cast<std::uint32_t>(random.below(1u << 24)),
                                  static_cast<std::uint32_t>(random.below(1u << 24))};
    for (const QpState state : {QpState::RESET, QpState::INIT, QpState::RTR, QpState::RTS}) {
      for (int near = 0; near < 2; ++near) modify(near, state, psn);
    }
    for (End& end : ends_) {
      std::array<Completion, 32> late;
      while (end.host.driver().poll_cq(end.cq, late).value > 0) {
      }
    }
  }

  // Posts and waits. An error ends the connection, and a new one is made.
  WcStatus run(End& end, SendWr wr, Random& random) {
    wr.send_flags |= kSendSignaled;
    const Status posted = end.host.send(end.qpn, wr);
    CHECK_EQ(posted.error, 0);
    const WcStatus status = end.host.wait(end.cq).status;
    if (status != WcStatus::SUCCESS) connect(random);
    return status;
  }

 private:
  void modify(int near, QpState state, const std::uint32_t (&psn)[2]) {
    End& end = ends_[static_cast<std::size_t>(near)];
    End& far = ends_[static_cast<std::size_t>(1 - near)];
    QpAttr attr;
    attr.qp_state = state;
    attr.qp_access_flags = 0xf;
    attr.path_mtu = 5;
    attr.dest_qp_num = far.qpn;
    attr.ah_attr.dgid = far.host.gid();
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    attr.timeout = 18;  // A second for each try: a busy machine is no error.
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.sq_psn = psn[near];
    attr.rq_psn = psn[1 - near];
    std::uint32_t mask = kQpState;
    if (state == QpState::INIT) mask |= kQpPkeyIndex | kQpPort | kQpAccessFlags;
    if (state == QpState::RTR) {
      mask |= kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer;
    }
    if (state == QpState::RTS) {
      mask |= kQpSqPsn | kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic;
    }
    const Status status =
        end.host.driver().with_adapter([&](Adapter& adapter, std::uint64_t now_ns) {
          return adapter.modify_qp(end.qpn, attr, mask, now_ns);
        });
    CHECK_EQ(status.error, 0);
  }

  std::array<End, 2> ends_;
};

// What a worker shows of its region; peers may use it long after it has gone.
struct Shown {
  std::uint64_t address = 0;
  std::uint64_t stamp = 0;
  std::uint32_t rkey = 0;
};

struct Scene {
  DriverHost a;
  DriverHost b;
  std::mutex mutex;  // Of what is shown.
  std::array<Shown, kWorkers> shown;
  std::unique_ptr<ChannelHandle> channel;
  std::atomic<std::size_t> running{kWorkers};
  std::atomic<std::uint64_t> served{0};
  std::atomic<std::uint64_t> refused{0};
};

SendWr transfer(WrOpcode opcode, const Line::End& end, std::uint64_t remote, std::uint32_t rkey) {
  SendWr wr;
  wr.opcode = opcode;
  wr.remote_address = remote;
  wr.rkey = rkey;
  wr.sges = {{reinterpret_cast<std::uint64_t>(end.words.data()), kWords * 8, end.mr.lkey}};
  return wr;
}

void peer(Scene& scene, Line& line, std::uint64_t own_seed) {
  Random random(own_seed);
  line.connect(random);
  Shown kept;
  while (scene.running.load() > 0) {
    if (kept.rkey == 0 || random.below(3) != 0) {
      const std::lock_guard lock(scene.mutex);
      kept = scene.shown[random.below(kWorkers)];
    }
    if (kept.rkey == 0) continue;
    const std::uint64_t at =
        kept.address + random.below(kPages) * kPage + random.below(kPage / 8 - kWords) * 8;
    const bool reads = random.below(2) == 0;
    std::ranges::fill(line.a().words, mark_of(kept.stamp));
    const auto opcode = reads ? WrOpcode::RDMA_READ : WrOpcode::RDMA_WRITE;
    const WcStatus status = line.run(line.a(), transfer(opcode, line.a(), at, kept.rkey), random);
    if (status == WcStatus::SUCCESS) {
      ++scene.served;
      for (const std::uint64_t word : line.a().words) CHECK(belongs(word, kept.stamp));
    } else {
      ++scene.refused;
      CHECK(status == WcStatus::REM_ACCESS_ERR || status == WcStatus::REM_OP_ERR);
    }
  }
}

class Worker {
 public:
  Worker(Scene& scene, Line& line, std::size_t number)
      : scene_(scene), line_(line), number_(number), random_(seed() + number) {}

  void run(std::size_t count) {
    line_.connect(random_);
    // Peers that get no processor meanwhile are waited for: nothing is tried without them.
    const std::uint64_t until_ns = monotonic_ns() + kPatienceNs;
    for (std::size_t round = 1; round <= count || wants_refusals(until_ns); ++round) {
      one_round(round);
    }
    --scene_.running;
  }

 private:
  auto words(std::size_t page) const {
    return static_cast<std::uint64_t*>(pointer(at_ + page * kPage));
  }
  void fill(std::size_t page, std::uint64_t word) { std::fill_n(words(page), kPage / 8, word); }

  bool wants_refusals(std::uint64_t until_ns) const {
    return scene_.refused.load() == 0 && monotonic_ns() < until_ns;
  }

  void one_round(std::uint64_t round) {
    stamp_ = stamp_of(number_, round);
    at_ = map_pages(kPages, zone_of(20 + number_));
    for (std::size_t page = 0; page < kPages; ++page) fill(page, stamp_);
    auto watch = WatchHandle::open(*scene_.channel, at_, kPages * kPage, stamp_);
    CHECK(watch.ok());
    const auto mr = scene_.b.call([&](Adapter& adapter) {
      return adapter.reg_watched_mr(scene_.b.pd, at_, kPages * kPage, at_, kAccess,
                                    watch.value->range());
    });
    CHECK(mr.ok());
    const std::uint32_t window = random_.below(4) == 0 ? bind(mr.value) : 0;
    show({at_, stamp_, mr.value.rkey});

    const std::size_t page = random_.below(kPages);
    CHECK(send_from(mr.value, page) == WcStatus::SUCCESS);
    for (const std::uint64_t word : line_.a().words) CHECK(belongs(word, stamp_));
    if (window != 0) CHECK(reach(page) == WcStatus::SUCCESS);
    change(page, mr.value, window);

    if (window != 0) {
      CHECK(scene_.b.call([&](Adapter& adapter) { return adapter.dealloc_mw(window); }).ok());
    }
    CHECK(scene_.b.call([&](Adapter& adapter) { return adapter.dereg_mr(mr.value.handle); }).ok());
    CHECK_EQ(watch.value->close(), changed_ ? 1u : 0u);
    munmap(pointer(at_), kPages * kPage);
  }

  void show(const Shown& shown) {
    const std::lock_guard lock(scene_.mutex);
    scene_.shown[number_] = shown;
  }

  // Takes a page away, after which nobody reaches it, whatever is there.
  void change(std::size_t page, const MrInfo& mr, std::uint32_t window) {
    const auto kind = random_.below(4);
    changed_ = kind != 0;
    if (!changed_) return;
    void* const place = pointer(at_ + page * kPage);
    if (kind == 1) munmap(place, kPage);
    if (kind == 2) madvise(place, kPage, MADV_DONTNEED);
    if (kind == 3) map_pages(1, at_ + page * kPage);
    if (kind != 1) fill(page, kForeign);
    CHECK(send_from(mr, page) == WcStatus::LOC_PROT_ERR);
    if (window != 0) CHECK(reach(page) != WcStatus::SUCCESS);
    if (kind == 1) return;
    for (std::size_t at = 0; at < kPage / 8; ++at) CHECK_EQ(words(page)[at], kForeign);
  }

  // The owner's own access: a WRITE to the other end, out of the region.
  WcStatus send_from(const MrInfo& mr, std::size_t page) {
    SendWr wr =
        transfer(WrOpcode::RDMA_WRITE, line_.b(),
                 reinterpret_cast<std::uint64_t>(line_.a().words.data()), line_.a().mr.rkey);
    wr.sges = {{at_ + page * kPage + 8 * random_.below(kPage / 8 - kWords), kWords * 8, mr.lkey}};
    return line_.run(line_.b(), wr, random_);
  }

  // Lends the region to the other end of the line.
  std::uint32_t bind(const MrInfo& mr) {
    const std::uint32_t window =
        scene_.b
            .call([&](Adapter& adapter) { return adapter.alloc_mw(scene_.b.pd, MwType::TYPE_2); })
            .value;
    window_key_ = window;
    SendWr wr;
    wr.opcode = WrOpcode::BIND_MW;
    wr.memory.object = window;
    wr.memory.key = window_key_;
    wr.memory.bind = {mr.lkey, at_, kPages * kPage, kAccessRemoteRead | kAccessRemoteWrite};
    CHECK(line_.run(line_.b(), wr, random_) == WcStatus::SUCCESS);
    return window;
  }

  // The other end writes into the window.
  WcStatus reach(std::size_t page) {
    std::ranges::fill(line_.a().words, mark_of(stamp_));
    return line_.run(line_.a(),
                     transfer(WrOpcode::RDMA_WRITE, line_.a(), at_ + page * kPage, window_key_),
                     random_);
  }

  Scene& scene_;
  Line& line_;
  const std::size_t number_;
  Random random_;
  std::uint64_t at_ = 0;
  std::uint64_t stamp_ = 0;
  std::uint32_t window_key_ = 0;
  bool changed_ = false;
};

TEST("nothing stale: several threads and peers, on memory that comes and goes") {
  Scene scene;
  scene.channel = std::move(ChannelHandle::open().value);
  CHECK(scene.channel != nullptr);
  std::vector<std::unique_ptr<Line>> lines;
  for (std::size_t line = 0; line < kWorkers + kPeers; ++line) {
    lines.push_back(std::make_unique<Line>(scene.a, scene.b));
  }
  std::vector<std::thread> threads;
  for (std::size_t worker = 0; worker < kWorkers; ++worker) {
    threads.emplace_back(
        [&, worker] { Worker(scene, *lines[worker], worker).run(rounds(300) / kWorkers); });
  }
  for (std::size_t number = 0; number < kPeers; ++number) {
    threads.emplace_back(
        [&, number] { peer(scene, *lines[kWorkers + number], seed() + 100 + number); });
  }
  // Nobody would read the notices; this thread does.
  std::array<InvalidationEvent, 64> events;
  while (scene.running.load() > 0) {
    static_cast<void>(scene.channel->take(events));
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(scene.refused.load() > 0);
  std::printf("peers: %llu served, %llu refused ",
              static_cast<unsigned long long>(scene.served.load()),
              static_cast<unsigned long long>(scene.refused.load()));
}

}  // namespace
}  // namespace softhca::testing
