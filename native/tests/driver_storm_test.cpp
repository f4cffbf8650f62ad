// Whatever threads do at once to the queue pairs, queues and keys of two drivers, by their own
// kind of link and over the wire: nothing crashes, nothing is torn, and the drivers still work.
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "driver/completion_channel.hpp"
#include "tests/check.hpp"
#include "tests/driver_hosts.hpp"
#include "tests/rounds.hpp"
#include "vocabulary/random.hpp"

namespace softhca {
namespace {

using namespace softhca::testing;

constexpr std::size_t kPairs = 3;
constexpr std::size_t kBytes = 16384;
constexpr std::uint32_t kDepth = 16;

// Any step may be refused: another thread may have closed or moved what it is about.
template <class Outcome>
void whether_or_not(const Outcome&) {}

// What a host has that all threads share. Its memory is written to until both drivers are closed.
struct StormHost {
  StormHost(const OpenOptions& options, std::vector<std::uint8_t>& memory)
      : host(options), channel(std::make_shared<CompletionChannel>()), bytes(memory) {
    CHECK_EQ(channel->open(), 0);
    number = host.driver().completion_sinks().add(channel);
    mr = host.reg(bytes);
    srq = host.call([this](Adapter& adapter) {
                return adapter.create_srq(host.pd, {kDepth, 1, 0}, 0, 0);
              })
              .value;
    CHECK(host.call([this](Adapter& adapter) { return adapter.attach_cq(host.cq, number); }).ok());
  }
  std::uint32_t create_qp(bool shared) {
    QpInit init;
    init.pd = host.pd;
    init.send_cq = init.recv_cq = host.cq;
    init.srq = shared ? srq : 0;
    init.cap = {kDepth, shared ? 0 : kDepth, 1, 1, 64};
    return host.call([&](Adapter& adapter) { return adapter.create_qp(init); }).value;
  }

  DriverHost host;
  std::shared_ptr<CompletionChannel> channel;
  std::uint32_t number = 0;
  std::vector<std::uint8_t>& bytes;
  MrInfo mr;
  std::uint32_t srq = 0;
};

class Storm {
 public:
  explicit Storm(const OpenOptions& options)
      : memory_{std::vector<std::uint8_t>(kBytes), std::vector<std::uint8_t>(kBytes)},
        hosts_{StormHost(options, memory_[0]), StormHost(options, memory_[1])} {
    for (auto& pair : pairs_) {
      for (std::size_t i = 0; i < 2; ++i) pair[i] = hosts_[i].create_qp(&pair == &pairs_[0]);
      begin(pair[0], pair[1]);
    }
  }

  void blow(std::uint64_t seed, std::size_t steps) {
    Random random(seed);
    for (std::size_t step = 0; step < steps; ++step) act(random);
  }

 private:
  void modify(std::size_t at, std::uint32_t qpn, const QpAttr& attr, std::uint32_t mask) {
    whether_or_not(
        hosts_[at].host.driver().with_adapter([&](Adapter& adapter, std::uint64_t now_ns) {
          return adapter.modify_qp(qpn, attr, mask, now_ns);
        }));
  }
  void begin(std::uint32_t first, std::uint32_t second) {
    for (std::size_t at = 0; at < 2; ++at) {
      const std::uint32_t qpn = at == 0 ? first : second;
      QpAttr attr;
      attr.qp_access_flags = 0xf;
      attr.path_mtu = 3;
      attr.dest_qp_num = at == 0 ? second : first;
      attr.ah_attr.dgid = hosts_[1 - at].host.gid();
      attr.max_rd_atomic = attr.max_dest_rd_atomic = 4;
      attr.min_rnr_timer = 1;
      attr.timeout = 12;
      attr.retry_cnt = attr.rnr_retry = 1;
      attr.qp_state = QpState::RESET;
      modify(at, qpn, attr, kQpState);
      attr.qp_state = QpState::INIT;
      modify(at, qpn, attr, kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags);
      attr.qp_state = QpState::RTR;
      modify(at, qpn, attr,
             kQpState | kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic |
                 kQpMinRnrTimer);
      attr.qp_state = QpState::RTS;
      modify(at, qpn, attr,
             kQpState | kQpSqPsn | kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic);
    }
  }

  void act(Random& random) {
    const std::size_t at = random.below(2);
    auto& pair = pairs_[random.below(kPairs)];
    const std::uint32_t qpn = pair[at].load();
    StormHost& here = hosts_[at];
    const std::uint64_t chance = random.below(100);
    if (chance < 40) {
      send(random, at, qpn);
    } else if (chance < 55) {
      receive(random, here, qpn);
    } else if (chance < 80) {
      std::array<Completion, 16> out;
      whether_or_not(here.host.driver().poll_cq(here.host.cq, out));
    } else if (chance < 84) {
      whether_or_not(here.host.call([&](Adapter& adapter) {
        return adapter.req_notify_cq(here.host.cq, random.below(2) == 0 ? 2 : 6);
      }));
    } else if (chance < 86) {
      here.host.driver().wait_for(*here.channel, monotonic_ns() + random.below(200'000));
      here.channel->pop();
    } else if (chance < 88) {
      const auto cqe = static_cast<std::uint32_t>(1024 + random.below(9));
      whether_or_not(
          here.host.call([&](Adapter& adapter) { return adapter.resize_cq(here.host.cq, cqe); }));
    } else if (chance < 92) {
      constexpr QpState kStates[] = {QpState::ERR, QpState::SQD, QpState::RTS, QpState::RESET};
      QpAttr attr;
      attr.qp_state = kStates[random.below(4)];
      modify(at, qpn, attr, kQpState);
    } else if (chance < 95) {
      begin(pair[0].load(), pair[1].load());
    } else if (chance < 96) {
      const std::uint32_t fresh = here.create_qp(&pair == &pairs_[0]);
      const std::uint32_t old = pair[at].exchange(fresh);
      whether_or_not(here.host.call([&](Adapter& adapter) { return adapter.destroy_qp(old); }));
    } else if (chance < 98) {
      const MrInfo mr = here.host.reg(here.bytes);
      post(at, qpn, WrOpcode::RDMA_READ, mr.lkey, 4096, hosts_[1 - at].mr.rkey);
      whether_or_not(here.host.call([&](Adapter& adapter) { return adapter.dereg_mr(mr.handle); }));
    } else {
      AsyncEvent event;
      whether_or_not(here.host.driver().next_event(event));
    }
  }

  void send(Random& random, std::size_t at, std::uint32_t qpn) {
    constexpr WrOpcode kOpcodes[] = {WrOpcode::SEND, WrOpcode::RDMA_WRITE, WrOpcode::RDMA_READ,
                                     WrOpcode::RDMA_WRITE_WITH_IMM};
    constexpr std::uint32_t kLengths[] = {0, 1, 64, 1000, 1024, 8000};
    const std::uint32_t wrong = random.below(64) == 0 ? 1 : 0;
    post(at, qpn, kOpcodes[random.below(4)], hosts_[at].mr.lkey, kLengths[random.below(6)],
         hosts_[1 - at].mr.rkey ^ wrong);
  }
  // Each host sends out of its first half, and its peer writes into the second one: two threads
  // that touch the same bytes would rightly be told of.
  void post(std::size_t at, std::uint32_t qpn, WrOpcode opcode, std::uint32_t lkey,
            std::uint32_t length, std::uint32_t rkey) {
    SendWr wr;
    wr.opcode = opcode;
    wr.send_flags = kSendSignaled;
    wr.sges = {{address(hosts_[at]), length, lkey}};
    wr.remote_address = address(hosts_[1 - at]) + kBytes / 2;
    wr.rkey = rkey;
    whether_or_not(hosts_[at].host.send(qpn, wr));
  }
  void receive(Random& random, StormHost& here, std::uint32_t qpn) {
    RecvWr wr;
    wr.sges = {{address(here) + kBytes / 2, kBytes / 2, here.mr.lkey}};
    if (random.below(2) == 0) {
      whether_or_not(here.host.recv(qpn, wr));
      return;
    }
    whether_or_not(here.host.driver().with_adapter([&](Adapter& adapter, std::uint64_t now_ns) {
      const RecvWr* list[] = {&wr};
      std::size_t posted = 0;
      return adapter.post_srq_recv(here.srq, list, posted, now_ns);
    }));
  }
  static std::uint64_t address(const StormHost& host) {
    return reinterpret_cast<std::uint64_t>(host.bytes.data());
  }

  std::array<std::vector<std::uint8_t>, 2> memory_;
  std::array<StormHost, 2> hosts_;
  std::array<std::array<std::atomic<std::uint32_t>, 2>, kPairs> pairs_{};
};

void blows_over(bool shortcut) {
  OpenOptions options;
  options.shortcut = shortcut;
  Storm storm(options);
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 4; ++i) {
    threads.emplace_back([&storm, i] { storm.blow(seed() + i, rounds(1000)); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST("driver: whatever threads do at once to neighbours") { blows_over(true); }

TEST("driver: whatever threads do at once over the wire") { blows_over(false); }

}  // namespace
}  // namespace softhca
