// Queues of an adapter that end before, or outlive, the queue pairs that complete on them.

#include "tests/check.hpp"
#include "tests/simulated_pair.hpp"

namespace softhca::testing {
namespace {

struct XrcTarget : Pair {
  std::uint32_t xrcd = b.adapter->alloc_xrcd().value;
  std::uint32_t srq_cq = b.adapter->create_cq(4).value;
  std::uint32_t srq = b.adapter->create_srq(b.pd, {8, 1, 0}, xrcd, srq_cq).value;
  std::uint32_t initiator = a.qp(QpType::XRC_SEND);
  std::uint32_t target = 0;

  XrcTarget() : Pair(seed()) {
    QpInit init;
    init.type = QpType::XRC_RECV;
    init.xrcd = xrcd;
    target = b.adapter->create_qp(init).value;
    CHECK(connect(true, initiator, QpType::XRC_SEND, target, 5, 9).ok());
    CHECK(connect(false, target, QpType::XRC_RECV, initiator, 9, 5).ok());
  }
  void send_one(std::uint64_t wr_id) {
    RecvWr recv;
    recv.wr_id = wr_id;
    const RecvWr* list[] = {&recv};
    std::size_t posted = 0;
    CHECK(b.adapter->post_srq_recv(srq, list, posted, now_ns).ok());
    SendWr wr;
    wr.xrc_srqn = b.adapter->srq_number(srq).value;
    CHECK(send(true, initiator, wr).ok());
    run();
  }
};

TEST("adapter: completions of an XRC target go with it though its SRQ went before") {
  XrcTarget pair;
  pair.send_one(1);
  CHECK(pair.b.adapter->destroy_srq(pair.srq).ok());
  CHECK(pair.b.adapter->destroy_qp(pair.target).ok());
  CHECK(pair.b.poll(pair.srq_cq).empty());
}

TEST("adapter: who completes on a dead completion queue goes to ERR, and is told") {
  Pair pair(seed());
  const std::uint32_t cq = pair.a.adapter->create_cq(1).value;
  QpInit init;
  init.pd = pair.a.pd;
  init.send_cq = init.recv_cq = cq;
  init.cap = {4, 4, 1, 1, 0};
  const auto connected = [&] {
    const std::uint32_t qpn = pair.a.adapter->create_qp(init).value;
    const std::uint32_t other = pair.b.qp();
    CHECK(pair.connect(true, qpn, QpType::RC, other, 1, 2).ok());
    CHECK(pair.connect(false, other, QpType::RC, qpn, 2, 1).ok());
    return qpn;
  };
  const auto events = [&] {
    std::vector<EventType> seen;
    for (AsyncEvent event; pair.a.adapter->next_event(event);) {
      seen.push_back(event.type);
    }
    return seen;
  };
  const auto write_nothing = [&](std::uint32_t qpn) {
    SendWr wr;
    wr.opcode = WrOpcode::RDMA_WRITE;
    wr.send_flags = kSendSignaled;
    CHECK(pair.send(true, qpn, wr).ok());
    pair.run();
    return pair.a.adapter->query_qp(qpn, init).value.qp_state;
  };
  const std::uint32_t first = connected();
  CHECK(write_nothing(first) == QpState::RTS);
  CHECK(write_nothing(first) == QpState::ERR);
  CHECK(events() == (std::vector<EventType>{EventType::CQ_ERR, EventType::QP_FATAL}));
  const std::uint32_t second = connected();
  CHECK(write_nothing(second) == QpState::ERR);
  CHECK(events() == std::vector<EventType>{EventType::QP_FATAL});
}

TEST("adapter: an alternate path is checked like the path") {
  Pair pair(seed());
  const std::uint32_t qpn = pair.a.qp();
  QpAttr attr;
  attr.qp_state = QpState::INIT;
  CHECK(pair.a.adapter->modify_qp(qpn, attr, kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags, 0)
            .ok());
  attr.qp_state = QpState::RTR;
  attr.ah_attr.dgid = pair.b.adapter->config().gids[0];
  attr.dest_qp_num = 5;
  constexpr std::uint32_t kMask = kQpState | kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn |
                                  kQpMaxDestRdAtomic | kQpMinRnrTimer | kQpAltPath;
  CHECK_EQ(pair.a.adapter->modify_qp(qpn, attr, kMask, 0).error, EINVAL);
  attr.alt_ah_attr = attr.ah_attr;
  attr.alt_timeout = 32;
  CHECK_EQ(pair.a.adapter->modify_qp(qpn, attr, kMask, 0).error, EINVAL);
  attr.alt_timeout = 14;
  attr.alt_pkey_index = 1;
  CHECK_EQ(pair.a.adapter->modify_qp(qpn, attr, kMask, 0).error, EINVAL);
  attr.alt_pkey_index = 0;
  CHECK(pair.a.adapter->modify_qp(qpn, attr, kMask, 0).ok());
}

}  // namespace
}  // namespace softhca::testing
