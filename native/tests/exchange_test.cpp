// Queue pairs of one adapter that exchange packets without a wire.
#include <cstdint>
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

  std::uint32_t qp() {
    QpInit init;
    init.pd = pd;
    init.send_cq = init.recv_cq = cq;
    init.cap = {16, 16, 1, 1, 0};
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
    attr.path_mtu = 5;
    attr.dest_qp_num = peer;
    attr.min_rnr_timer = 12;
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

}  // namespace
}  // namespace softhca
