// A neighbour that sends something and goes: two neighbourhoods without drivers, so that nobody
// looks at the ring in between.
#include <atomic>
#include <thread>

#include "neighbour/neighbourhood.hpp"
#include "tests/check.hpp"

namespace softhca::testing {
namespace {

constexpr std::uint64_t kNow = 1'000'000;
constexpr std::uint32_t kBytes = 64;

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

TEST("neighbour: what one has sent before it went arrives") {
  Side leaver(1);
  Side other(2);
  std::atomic<bool> met{false};
  std::thread server([&] {
    while (!met.load()) other.neighbours->serve();
  });
  leaver.neighbours->meet(other.gid());
  met.store(true);
  server.join();
  CHECK(leaver.neighbours->is_inhabited());
  leaver.connect(other);
  other.connect(leaver);
  RecvWr recv;
  recv.wr_id = 7;
  recv.sges = {other.sge()};
  const RecvWr* const recvs[] = {&recv};
  std::size_t posted = 0;
  CHECK(other.adapter.post_recv(other.qpn, recvs, posted, kNow).ok());
  SendWr send;
  send.send_flags = kSendSignaled;
  send.sges = {leaver.sge()};
  leaver.bytes[0] = 42;
  const SendWr* const sends[] = {&send};
  CHECK(leaver.adapter.post_send(leaver.qpn, sends, posted, kNow).ok());
  CHECK(!leaver.adapter.exchange(kNow));
  Completion completion;
  CHECK_EQ(leaver.adapter.poll_cq(leaver.cq, {&completion, 1}).value, 1u);
  leaver.go();
  while (other.neighbours->is_inhabited()) other.neighbours->serve();
  CHECK_EQ(other.adapter.poll_cq(other.cq, {&completion, 1}).value, 1u);
  CHECK_EQ(completion.wr_id, 7u);
  CHECK_EQ(other.bytes[0], 42);
  other.go();
}

}  // namespace
}  // namespace softhca::testing
