// Queue pairs of one adapter that exchange packets without a wire.
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "adapter/adapter.hpp"
#include "tests/check.hpp"

namespace softhca {
namespace {

constexpr std::uint64_t kNow = 1'000'000;

AdapterConfig with_shortcut() {
  const std::uint8_t address[4] = {10, 0, 0, 1};
  AdapterConfig config;
  config.gids = {Gid::from_ipv4(address)};
  config.seed = softhca::testing::seed();
  config.shortcut = true;
  return config;
}

struct OneHost {
  Adapter adapter{with_shortcut()};
  std::uint32_t pd = adapter.alloc_pd().value;
  std::uint32_t cq = adapter.create_cq(16).value;
  std::uint8_t mtu_code = 5;

  std::uint32_t qp(QpType type = QpType::RC) {
    QpInit init;
    init.type = type;
    init.pd = pd;
    init.send_cq = init.recv_cq = cq;
    init.cap = {16, 16, 32, 1, 0};
    return adapter.create_qp(init).value;
  }
  void connect(std::uint32_t qpn, std::uint32_t peer) {
    QpAttr attr;
    attr.qp_state = QpState::INIT;
    attr.qp_access_flags = 0xf;
    const std::uint32_t to_init = kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags;
    CHECK(adapter.modify_qp(qpn, attr, to_init, kNow).ok());
    attr.qp_state = QpState::RTR;
    attr.ah_attr.dgid = adapter.config().gids[0];
    attr.path_mtu = mtu_code;
    attr.dest_qp_num = peer;
    attr.min_rnr_timer = 12;
    attr.max_dest_rd_atomic = attr.max_rd_atomic = 4;
    const std::uint32_t to_rtr =
        kQpState | kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer;
    CHECK(adapter.modify_qp(qpn, attr, to_rtr, kNow).ok());
    attr.qp_state = QpState::RTS;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 7;
    const std::uint32_t to_rts =
        kQpState | kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpSqPsn | kQpMaxQpRdAtomic;
    CHECK(adapter.modify_qp(qpn, attr, to_rts, kNow).ok());
  }
};

TEST("exchange: what is posted right after connecting does not wait for whoever serves the wire") {
  OneHost host;
  const std::uint32_t near = host.qp();
  const std::uint32_t far = host.qp();
  host.connect(near, far);
  host.connect(far, near);
  std::vector<std::uint8_t> source(64, 1);
  std::vector<std::uint8_t> target(64, 2);
  const auto reg = [&](std::vector<std::uint8_t>& bytes) {
    const auto address = reinterpret_cast<std::uint64_t>(bytes.data());
    return host.adapter.reg_mr(host.pd, address, bytes.size(), address, 0xf).value;
  };
  const MrInfo source_mr = reg(source);
  const MrInfo target_mr = reg(target);
  SendWr write;
  write.opcode = WrOpcode::RDMA_WRITE;
  write.send_flags = kSendSignaled;
  write.remote_address = reinterpret_cast<std::uint64_t>(target.data());
  write.rkey = target_mr.rkey;
  write.sges = {{reinterpret_cast<std::uint64_t>(source.data()), 64, source_mr.lkey}};
  const SendWr* const list[] = {&write};
  std::size_t posted = 0;
  CHECK(host.adapter.post_send(near, list, posted, kNow).ok());
  CHECK(!host.adapter.exchange(kNow));
  std::vector<Completion> came(4);
  CHECK_EQ(host.adapter.poll_cq(host.cq, came).value, 1u);
  CHECK_EQ(came[0].status, WcStatus::SUCCESS);
  CHECK(source == target);
}

// Takes the memory away and keeps its place, where an allocation of somebody's could land
// otherwise.
void take_away(void* memory, std::size_t length) {
  constexpr int kEmpty = MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  CHECK(mmap(memory, length, PROT_NONE, kEmpty, -1, 0) == memory);
}

constexpr std::size_t kLong = 600'000;  // More than one packet of a local path stands for.

// Two unreliable queue pairs; what `near` has to send lies in memory of its own.
struct UnreliableHost : OneHost {
  std::uint32_t near = qp(QpType::UC);
  std::uint32_t far = qp(QpType::UC);
  std::uint8_t* source = static_cast<std::uint8_t*>(
      mmap(nullptr, kLong, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::vector<std::uint8_t> target = std::vector<std::uint8_t>(kLong);

  UnreliableHost() {
    join(near, far);
    join(far, near);
    std::fill_n(source, kLong, std::uint8_t{42});
  }
  ~UnreliableHost() { munmap(source, kLong); }
  void join(std::uint32_t qpn, std::uint32_t peer) {
    QpAttr attr;
    attr.ah_attr.dgid = adapter.config().gids[0];
    attr.path_mtu = 5;
    attr.dest_qp_num = peer;
    for (const auto& [state, mask] :
         {std::pair{QpState::INIT, kQpPkeyIndex | kQpPort | kQpAccessFlags},
          std::pair{QpState::RTR, kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn},
          std::pair{QpState::RTS, kQpSqPsn | 0}}) {
      attr.qp_state = state;
      CHECK(adapter.modify_qp(qpn, attr, kQpState | static_cast<std::uint32_t>(mask), kNow).ok());
    }
  }
  Sge sge(const std::uint8_t* bytes) {
    const auto address = reinterpret_cast<std::uint64_t>(bytes);
    return {address, kLong, adapter.reg_mr(pd, address, kLong, address, 0xf).value.lkey};
  }
  void settle() {
    while (adapter.exchange(kNow)) {
    }
  }
  void receive() {
    RecvWr recv;
    recv.sges = {sge(target.data())};
    const RecvWr* const list[] = {&recv};
    std::size_t posted = 0;
    CHECK(adapter.post_recv(far, list, posted, kNow).ok());
  }
  void send() {
    SendWr send;
    send.send_flags = kSendSignaled;
    send.sges = {sge(source)};
    const SendWr* const list[] = {&send};
    std::size_t posted = 0;
    CHECK(adapter.post_send(near, list, posted, kNow).ok());
  }
};

// A program that polls without a lock, and writes over its memory as soon as it may.
struct Hasty final : CompletionOutlet {
  explicit Hasty(std::uint8_t* bytes) : memory(bytes) {}
  bool put(const Completion&) override {
    std::fill_n(memory, kLong, std::uint8_t{1});
    ++completions;
    return true;
  }
  std::uint32_t count() const override { return 0; }
  bool continue_from(const CompletionOutlet&) override { return true; }
  std::uint8_t* memory;
  int completions = 0;
};

TEST("exchange: an unreliable payload has arrived when who sent it is told so") {
  UnreliableHost host;
  const auto hasty = std::make_shared<Hasty>(host.source);
  CHECK(host.adapter.lead_cq(host.cq, hasty).ok());
  host.receive();
  host.send();
  host.settle();
  CHECK_EQ(hasty->completions, 2);
  CHECK_EQ(std::ranges::count(host.target, 42), static_cast<std::ptrdiff_t>(kLong));
}

TEST("exchange: an unreliable payload that is gone fails who sent it") {
  UnreliableHost host;
  host.receive();
  host.send();
  take_away(host.source, kLong);
  host.settle();
  std::vector<Completion> came(4);
  CHECK_EQ(host.adapter.poll_cq(host.cq, came).value, 1u);
  CHECK_EQ(came[0].status, WcStatus::LOC_PROT_ERR);
  QpInit init;
  CHECK(host.adapter.query_qp(host.near, init).value.qp_state == QpState::SQE);
}

TEST("exchange: an unreliable message that is dropped leaves no gap behind it") {
  UnreliableHost host;
  host.send();
  host.settle();
  host.receive();
  host.send();
  host.settle();
  std::vector<Completion> came(4);
  CHECK_EQ(host.adapter.poll_cq(host.cq, came).value, 3u);
  CHECK_EQ(host.adapter.counters().out_of_sequence, 0u);
}

// Its answer takes several packets, of which the first is found to be gone where it arrives, and
// the next before it leaves.
TEST("exchange: a long READ of what is gone is refused") {
  OneHost host;
  const std::uint32_t near = host.qp();
  const std::uint32_t far = host.qp();
  host.connect(near, far);
  host.connect(far, near);
  void* const gone =
      mmap(nullptr, kLong, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto from = reinterpret_cast<std::uint64_t>(gone);
  const MrInfo source = host.adapter.reg_mr(host.pd, from, kLong, from, kAccessRemoteRead).value;
  take_away(gone, kLong);
  std::vector<std::uint8_t> bytes(kLong);
  const auto to = reinterpret_cast<std::uint64_t>(bytes.data());
  const MrInfo target = host.adapter.reg_mr(host.pd, to, kLong, to, kAccessLocalWrite).value;
  SendWr read;
  read.opcode = WrOpcode::RDMA_READ;
  read.remote_address = from;
  read.rkey = source.rkey;
  read.sges = {{to, kLong, target.lkey}};
  const SendWr* const list[] = {&read};
  std::size_t posted = 0;
  CHECK(host.adapter.post_send(near, list, posted, kNow).ok());
  while (host.adapter.exchange(kNow)) {
  }
  std::vector<Completion> came(4);
  CHECK_EQ(host.adapter.poll_cq(host.cq, came).value, 1u);
  CHECK_EQ(came[0].status, WcStatus::REM_ACCESS_ERR);
  munmap(gone, kLong);
}

// Half of all PSNs are under way then, which is as far as they can be told apart.
TEST("exchange: the longest READ with the smallest packets comes to its end") {
  OneHost host;
  host.mtu_code = 1;
  const std::uint32_t near = host.qp();
  const std::uint32_t far = host.qp();
  host.connect(near, far);
  host.connect(far, near);
  constexpr std::uint64_t kLongest = 1u << 31;
  constexpr std::uint32_t kEntries = 32;
  void* const zeros =
      mmap(nullptr, kLongest, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  const auto from = reinterpret_cast<std::uint64_t>(zeros);
  const MrInfo source = host.adapter.reg_mr(host.pd, from, kLongest, from, kAccessRemoteRead).value;
  std::vector<std::uint8_t> bytes(kLongest / kEntries, 1);
  const auto to = reinterpret_cast<std::uint64_t>(bytes.data());
  const MrInfo target = host.adapter.reg_mr(host.pd, to, bytes.size(), to, kAccessLocalWrite).value;
  SendWr read;
  read.opcode = WrOpcode::RDMA_READ;
  read.send_flags = kSendSignaled;
  read.remote_address = from;
  read.rkey = source.rkey;
  read.sges.assign(kEntries, {to, static_cast<std::uint32_t>(bytes.size()), target.lkey});
  SendWr write;
  write.opcode = WrOpcode::RDMA_WRITE;
  write.send_flags = kSendSignaled;
  const SendWr* const list[] = {&read, &write};
  std::size_t posted = 0;
  CHECK(host.adapter.post_send(near, list, posted, kNow).ok());
  while (host.adapter.exchange(kNow)) {
  }
  std::vector<Completion> came(4);
  CHECK_EQ(host.adapter.poll_cq(host.cq, came).value, 2u);
  CHECK_EQ(came[0].status, WcStatus::SUCCESS);
  CHECK_EQ(came[0].byte_len, kLongest);
  CHECK_EQ(came[1].status, WcStatus::SUCCESS);
  munmap(zeros, kLongest);
}

}  // namespace
}  // namespace softhca
