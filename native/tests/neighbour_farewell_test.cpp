// A neighbour that sends something and goes: two neighbourhoods without drivers, so that nobody
// looks at the ring in between.
#include <algorithm>
#include <atomic>
#include <thread>

#include "neighbour/neighbourhood.hpp"
#include "tests/check.hpp"

namespace softhca::testing {
namespace {

constexpr std::uint64_t kNow = 1'000'000;
constexpr std::uint32_t kBytes = 100'000;  // More than one record of a ring brings.

AdapterConfig config_of(std::uint8_t host) {
  const std::uint8_t address[4] = {127, 77, static_cast<std::uint8_t>(seed()), host};
  AdapterConfig config;
  config.gids = {Gid::from_ipv4(address)};
  config.shortcut = true;
  return config;
}

struct Side {
  explicit Side(std::uint8_t host) : adapter(config_of(host)) {
    neighbours = Neighbourhood::open(gid(), mutex, adapter);
    CHECK(neighbours != nullptr);
    adapter.set_paths(neighbours.get());
    pd = adapter.alloc_pd().value;
    cq = adapter.create_cq(16).value;
    const auto address = reinterpret_cast<std::uint64_t>(bytes);
    lkey = adapter.reg_mr(pd, address, kBytes, address, kAccessLocalWrite).value.lkey;
    QpInit init;
    init.type = QpType::UC;
    init.pd = pd;
    init.send_cq = init.recv_cq = cq;
    init.cap = {8, 8, 1, 1, 0};
    qpn = adapter.create_qp(init).value;
  }
  const Gid& gid() const { return adapter.config().gids[0]; }
  Sge sge() const { return {reinterpret_cast<std::uint64_t>(bytes), kBytes, lkey}; }

  void modify(const QpAttr& attr, std::uint32_t mask) {
    CHECK(adapter.modify_qp(qpn, attr, mask, kNow).ok());
  }
  void connect(const Side& peer) {
    QpAttr attr;
    attr.qp_state = QpState::INIT;
    modify(attr, kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags);
    attr.qp_state = QpState::RTR;
    attr.ah_attr.dgid = peer.gid();
    attr.path_mtu = 4;
    attr.dest_qp_num = peer.qpn;
    modify(attr, kQpState | kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn);
    attr.qp_state = QpState::RTS;
    modify(attr, kQpState | kQpSqPsn);
  }
  // It is gone as if its process had ended.
  void go() {
    adapter.set_paths(nullptr);
    neighbours.reset();
  }

  std::uint8_t bytes[kBytes] = {};
  ShortMutex mutex;
  Adapter adapter;
  std::unique_ptr<Neighbourhood> neighbours;
  std::uint32_t pd = 0;
  std::uint32_t cq = 0;
  std::uint32_t lkey = 0;
  std::uint32_t qpn = 0;
};

// Both know each other, and are connected.
void introduce(Side& one, Side& other) {
  std::atomic<bool> met{false};
  std::thread server([&] {
    while (!met.load()) other.neighbours->serve();
  });
  one.neighbours->meet(other.gid());
  met.store(true);
  server.join();
  CHECK(one.neighbours->is_inhabited());
  one.connect(other);
  other.connect(one);
}

// A message is sent, and completes before anybody has looked at it.
void send_unseen(Side& from, Side& to) {
  RecvWr recv;
  recv.wr_id = 7;
  recv.sges = {to.sge()};
  const RecvWr* const recvs[] = {&recv};
  std::size_t posted = 0;
  CHECK(to.adapter.post_recv(to.qpn, recvs, posted, kNow).ok());
  SendWr send;
  send.send_flags = kSendSignaled;
  send.sges = {from.sge()};
  std::ranges::fill(from.bytes, 42);
  const SendWr* const sends[] = {&send};
  CHECK(from.adapter.post_send(from.qpn, sends, posted, kNow).ok());
  CHECK(!from.adapter.exchange(kNow));
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
  Side leaver(1);
  Side other(2);
  introduce(leaver, other);
  send_unseen(leaver, other);
  leaver.go();
  while (other.neighbours->is_inhabited()) other.neighbours->serve();
  check_arrived(other);
  other.go();
}

// Nobody tells the sender of an unreliable connection when its payload has been fetched.
TEST("neighbour: an unreliable payload is its sender's again once it has completed") {
  Side sender(1);
  Side other(2);
  introduce(sender, other);
  send_unseen(sender, other);
  std::ranges::fill(sender.bytes, 1);
  CHECK(sender.adapter.destroy_qp(sender.qpn).ok());
  CHECK(other.neighbours->fetch(kNow));
  check_arrived(other);
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
