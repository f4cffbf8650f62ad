// Asynchronous events of an adapter: none forgotten, none twice, none of what is gone; and what
// happens to its port and to itself.

#include <algorithm>

#include "adapter/event_list.hpp"
#include "tests/check.hpp"
#include "tests/simulated_pair.hpp"

namespace softhca::testing {
namespace {

using Events = std::vector<EventType>;

Events take(Adapter& adapter) {
  Events taken;
  for (AsyncEvent event; adapter.next_event(event);) taken.push_back(event.type);
  return taken;
}

struct ConnectedPair : Pair {
  std::uint32_t qp_a = a.qp();
  std::uint32_t qp_b = b.qp();

  ConnectedPair() : Pair(seed()) {
    CHECK(connect(true, qp_a, QpType::RC, qp_b, 1, 2).ok());
    CHECK(connect(false, qp_b, QpType::RC, qp_a, 2, 1).ok());
  }
  QpState state(bool of_a) {
    QpInit init;
    return host(of_a).adapter->query_qp(of_a ? qp_a : qp_b, init).value.qp_state;
  }
  Status write_nothing() {
    SendWr wr;
    wr.opcode = WrOpcode::RDMA_WRITE;
    wr.send_flags = kSendSignaled;
    return send(true, qp_a, wr);
  }
};

TEST("events: of the same event of an object the latest waits") {
  EventList events;
  events.push(EventType::PORT_ERR, 1);
  events.push(EventType::QP_FATAL, 7);
  events.push(EventType::PORT_ACTIVE, 1);
  events.push(EventType::PORT_ERR, 1);
  events.push(EventType::QP_FATAL, 8);
  std::vector<std::pair<EventType, std::uint32_t>> taken;
  for (AsyncEvent event; events.pop(event);) taken.emplace_back(event.type, event.object);
  CHECK(taken == (std::vector<std::pair<EventType, std::uint32_t>>{{EventType::QP_FATAL, 7},
                                                                   {EventType::PORT_ACTIVE, 1},
                                                                   {EventType::PORT_ERR, 1},
                                                                   {EventType::QP_FATAL, 8}}));
  CHECK(events.empty());
}

TEST("events: none is forgotten while nobody takes them") {
  EventList events;
  constexpr std::uint32_t kObjects = 200'000;
  for (int round = 0; round < 2; ++round) {
    for (std::uint32_t object = 1; object <= kObjects; ++object) {
      events.push(EventType::CQ_ERR, object);
    }
  }
  AsyncEvent event;
  for (std::uint32_t object = 1; object <= kObjects; ++object) {
    CHECK(events.pop(event));
    CHECK_EQ(event.object, object);
  }
  CHECK(!events.pop(event));
}

TEST("events: what happened to an object goes with it, and nothing else") {
  EventList events;
  events.push(EventType::QP_FATAL, 7);
  events.push(EventType::CQ_ERR, 7);
  events.push(EventType::SRQ_LIMIT_REACHED, 7);
  events.push(EventType::QP_LAST_WQE_REACHED, 7);
  events.push(EventType::QP_FATAL, 8);
  events.forget_qp(7);
  AsyncEvent event;
  CHECK(events.pop(event));
  CHECK(event.type == EventType::CQ_ERR);
  events.forget_srq(7);
  CHECK(events.pop(event));
  CHECK_EQ(event.object, 8u);
  CHECK(events.empty());
}

TEST("port: going down and coming up is told once each") {
  ConnectedPair pair;
  Adapter& adapter = *pair.a.adapter;
  CHECK_EQ(adapter.query_port().state, 4);
  adapter.set_port_active(true);
  CHECK(take(adapter).empty());
  adapter.set_port_active(false);
  adapter.set_port_active(false);
  CHECK_EQ(adapter.query_port().state, 1);
  CHECK(take(adapter) == Events{EventType::PORT_ERR});
  adapter.set_port_active(true);
  CHECK_EQ(adapter.query_port().state, 4);
  CHECK(take(adapter) == Events{EventType::PORT_ACTIVE});
}

TEST("port: packets of both directions are lost while it is down, and no more") {
  ConnectedPair pair;
  pair.a.adapter->set_port_active(false);
  CHECK(pair.write_nothing().ok());
  std::array<std::uint8_t, kMaxDatagramBytes> buffer;
  OutgoingPacket out;
  CHECK(!pair.a.adapter->next_packet(buffer, out, pair.now_ns));
  CHECK_EQ(pair.a.adapter->counters().port_down_drops, 1u);
  pair.a.adapter->set_port_active(true);
  pair.run();
  CHECK_EQ(pair.a.poll().size(), std::size_t{1});

  pair.b.adapter->set_port_active(false);
  CHECK(pair.write_nothing().ok());
  CHECK(pair.a.adapter->next_packet(buffer, out, pair.now_ns));
  const ReceiveReport report = pair.b.adapter->receive(out.route, out.datagram, pair.now_ns);
  CHECK_EQ(std::string_view(report.verdict), std::string_view("the port is down"));
  pair.b.adapter->set_port_active(true);
  pair.run();
  CHECK_EQ(pair.a.poll().size(), std::size_t{1});
}

TEST("port: a port that stays down costs the retries") {
  ConnectedPair pair;
  pair.b.adapter->set_port_active(false);
  CHECK(pair.write_nothing().ok());
  pair.run();
  const std::vector<Completion> done = pair.a.poll();
  CHECK_EQ(done.size(), std::size_t{1});
  CHECK(done[0].status == WcStatus::RETRY_EXC_ERR);
}

TEST("port: a GID that changes is told, and address handles need the new one") {
  ConnectedPair pair;
  Adapter& adapter = *pair.a.adapter;
  const Gid before = adapter.config().gids[0];
  CHECK(adapter.set_gid(0, before).ok());
  CHECK(take(adapter).empty());
  CHECK(adapter.set_gid(0, Gid{}).ok());
  CHECK(take(adapter) == Events{EventType::GID_CHANGE});
  AhAttr attr;
  attr.dgid = pair.b.adapter->config().gids[0];
  CHECK_EQ(adapter.create_ah(pair.a.pd, attr).status.error, EINVAL);
  CHECK(adapter.set_gid(0, before).ok());
  CHECK(take(adapter) == Events{EventType::GID_CHANGE});
  CHECK(adapter.create_ah(pair.a.pd, attr).ok());
  CHECK_EQ(adapter.set_gid(1, before).error, EINVAL);
}

TEST("port: what its interface carries from now on bounds datagrams and new connections") {
  ConnectedPair pair;
  Adapter& adapter = *pair.a.adapter;
  const std::uint32_t qpn = pair.a.qp(QpType::UD);
  CHECK(pair.connect(true, qpn, QpType::UD, 0, 0, 0).ok());
  AhAttr attr;
  attr.dgid = pair.b.adapter->config().gids[0];
  std::vector<std::uint8_t> bytes(2048);
  SendWr wr;
  wr.opcode = WrOpcode::SEND;
  wr.send_flags = kSendSignaled;
  wr.ah = adapter.create_ah(pair.a.pd, attr).value;
  wr.sges = {{reinterpret_cast<std::uint64_t>(bytes.data()), 2048, pair.a.reg(bytes).lkey}};
  adapter.set_active_mtu(4);
  CHECK_EQ(adapter.query_port().active_mtu, 4);
  CHECK(pair.send(true, qpn, wr).ok());
  pair.run();
  CHECK(pair.a.poll().at(0).status == WcStatus::SUCCESS);
  adapter.set_active_mtu(3);
  CHECK(pair.send(true, qpn, wr).ok());
  pair.run();
  CHECK(pair.a.poll().at(0).status == WcStatus::LOC_LEN_ERR);
  const std::uint32_t late = pair.a.qp();
  CHECK_EQ(pair.connect(true, late, QpType::RC, 5, 1, 2, 4).error, EINVAL);
  CHECK(take(adapter).empty());
}

TEST("device: one that fails takes its queue pairs to ERR and keeps them there") {
  ConnectedPair pair;
  Adapter& adapter = *pair.a.adapter;
  const std::uint32_t idle = pair.a.qp();
  CHECK(pair.write_nothing().ok());
  adapter.fail_device();
  adapter.fail_device();
  CHECK(take(adapter) == Events{EventType::DEVICE_FATAL});
  CHECK_EQ(adapter.query_port().state, 1);
  CHECK(pair.state(true) == QpState::ERR);
  const std::vector<Completion> done = pair.a.poll();
  CHECK_EQ(done.size(), std::size_t{1});
  CHECK(done[0].status == WcStatus::WR_FLUSH_ERR);
  QpInit init;
  CHECK(adapter.query_qp(idle, init).value.qp_state == QpState::RESET);
  CHECK_EQ(pair.connect(true, idle, QpType::RC, 5, 1, 2).error, EIO);
  adapter.set_port_active(true);
  CHECK_EQ(adapter.query_port().state, 1);
  QpAttr reset;
  CHECK(adapter.modify_qp(pair.qp_a, reset, kQpState, pair.now_ns).ok());
  CHECK(adapter.destroy_qp(pair.qp_a).ok());
  CHECK(take(adapter).empty());
}

TEST("device: one that fails tells of the last receive of a shared queue") {
  Pair pair(seed());
  const std::uint32_t srq = pair.a.adapter->create_srq(pair.a.pd, {8, 1, 0}, 0, 0).value;
  const std::uint32_t qpn = pair.a.qp(QpType::RC, 4, srq);
  CHECK(pair.connect(true, qpn, QpType::RC, 5, 1, 2).ok());
  pair.a.adapter->fail_device();
  CHECK(take(*pair.a.adapter) == (Events{EventType::DEVICE_FATAL, EventType::QP_LAST_WQE_REACHED}));
}

}  // namespace
}  // namespace softhca::testing
