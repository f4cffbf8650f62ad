// Path migration between adapters with two addresses each: a connection outlives one of them.

#include "tests/check.hpp"
#include "tests/simulated_pair.hpp"

namespace softhca::testing {
namespace {

Gid address(std::uint8_t network, std::uint8_t host) {
  const std::uint8_t bytes[4] = {10, 0, network, host};
  return Gid::from_ipv4(bytes);
}

void give_two_addresses(Host& host, std::uint8_t last_octet) {
  AdapterConfig config;
  config.gids = {address(0, last_octet), address(1, last_octet)};
  config.seed = seed();
  config.icrc_level = IcrcLevel::STRICT;
  host.adapter = std::make_unique<Adapter>(config);
  host.pd = host.adapter->alloc_pd().value;
  host.cq = host.adapter->create_cq(4096).value;
}

struct TwoPaths : Pair {
  std::uint32_t qp_a = 0;
  std::uint32_t qp_b = 0;

  TwoPaths() : Pair(seed()) {
    give_two_addresses(a, 1);
    give_two_addresses(b, 2);
    qp_a = a.qp();
    qp_b = b.qp();
    CHECK(connect(true, qp_a, QpType::RC, qp_b, 1, 2).ok());
    CHECK(connect(false, qp_b, QpType::RC, qp_a, 2, 1).ok());
    rearm(*a.adapter, qp_a, 2);
    rearm(*b.adapter, qp_b, 1);
  }
  void rearm(Adapter& adapter, std::uint32_t qpn, std::uint8_t peer) {
    QpAttr attr;
    attr.alt_ah_attr.dgid = address(1, peer);
    attr.alt_ah_attr.sgid_index = 1;
    attr.alt_timeout = 12;
    attr.path_mig_state = MigState::REARM;
    CHECK(adapter.modify_qp(qpn, attr, kQpAltPath | kQpPathMigState, now_ns).ok());
  }
  QpAttr attributes(bool of_a) {
    QpInit init;
    return host(of_a).adapter->query_qp(of_a ? qp_a : qp_b, init).value;
  }
  WcStatus write_nothing() {
    SendWr wr;
    wr.opcode = WrOpcode::RDMA_WRITE;
    wr.send_flags = kSendSignaled;
    CHECK(send(true, qp_a, wr).ok());
    run();
    const std::vector<Completion> done = a.poll();
    CHECK_EQ(done.size(), std::size_t{1});
    return done[0].status;
  }
};

TEST("migration: a connection outlives the address that it was made with") {
  TwoPaths pair;
  CHECK(pair.write_nothing() == WcStatus::SUCCESS);
  for (const bool of_a : {true, false}) {
    CHECK(pair.attributes(of_a).path_mig_state == MigState::ARMED);
  }
  // Only what has migrated comes through: the first path is dead in both directions.
  pair.filter = [](bool, const Packet& packet) { return packet.bth.migrated; };
  CHECK(pair.write_nothing() == WcStatus::SUCCESS);
  for (const bool of_a : {true, false}) {
    const QpAttr attr = pair.attributes(of_a);
    CHECK(attr.path_mig_state == MigState::MIGRATED);
    CHECK_EQ(attr.ah_attr.sgid_index, 1);
    CHECK(attr.ah_attr.dgid == address(1, of_a ? 2 : 1));
    CHECK_EQ(attr.timeout, 12);
    AsyncEvent event;
    CHECK(pair.host(of_a).adapter->next_event(event));
    CHECK(event.type == EventType::PATH_MIG);
    CHECK(!pair.host(of_a).adapter->next_event(event));
  }
  CHECK(pair.write_nothing() == WcStatus::SUCCESS);
}

TEST("migration: no more retries than one path has are spent on each") {
  TwoPaths pair;
  CHECK(pair.write_nothing() == WcStatus::SUCCESS);
  unsigned first = 0, second = 0;
  pair.filter = [&](bool from_a, const Packet& packet) {
    if (from_a) ++(packet.bth.migrated ? second : first);
    return false;
  };
  const std::uint64_t timeouts = pair.a.adapter->counters().local_ack_timeout_err;
  CHECK(pair.write_nothing() == WcStatus::RETRY_EXC_ERR);
  CHECK_EQ(pair.a.adapter->counters().local_ack_timeout_err - timeouts, 16u);  // Twice 1 and 7.
  CHECK(first >= 8);
  CHECK(second >= 8);
}

TEST("migration: a packet from the old path is nobody's any more") {
  TwoPaths pair;
  CHECK(pair.write_nothing() == WcStatus::SUCCESS);
  SendWr wr;
  wr.opcode = WrOpcode::RDMA_WRITE;
  CHECK(pair.send(true, pair.qp_a, wr).ok());
  std::array<std::uint8_t, kMaxDatagramBytes> buffer;
  OutgoingPacket late;
  CHECK(pair.a.adapter->next_packet(buffer, late, pair.now_ns));
  QpAttr attr;
  CHECK(pair.b.adapter->modify_qp(pair.qp_b, attr, kQpPathMigState, pair.now_ns).ok());
  const ReceiveReport report = pair.b.adapter->receive(late.route, late.datagram, pair.now_ns);
  CHECK_EQ(std::string_view(report.verdict), std::string_view("not from the connected peer"));
}

}  // namespace
}  // namespace softhca::testing
