// Repeats that come when nobody needs them any more (IBTA Vol 1, 9.7.5.1.5).

#include "tests/check.hpp"
#include "tests/simulated_pair.hpp"
#include "wire/icrc.hpp"

namespace softhca::testing {
namespace {

constexpr std::uint32_t kPsn = 0x100;

TEST("transport: a READ repeated after its region is gone costs nobody the connection") {
  Pair pair(seed());
  const std::uint32_t qa = pair.a.qp();
  const std::uint32_t qb = pair.b.qp();
  CHECK(pair.connect(true, qa, QpType::RC, qb, kPsn, kPsn).ok());
  CHECK(pair.connect(false, qb, QpType::RC, qa, kPsn, kPsn).ok());
  std::vector<std::uint8_t> remote(64, 7);
  std::vector<std::uint8_t> local(64);
  const MrInfo far = pair.b.reg(remote);
  SendWr wr;
  wr.opcode = WrOpcode::RDMA_READ;
  wr.send_flags = kSendSignaled;
  wr.remote_address = reinterpret_cast<std::uint64_t>(remote.data());
  wr.rkey = far.rkey;
  wr.sges = {{reinterpret_cast<std::uint64_t>(local.data()), 64, pair.a.reg(local).lkey}};
  CHECK(pair.send(true, qa, wr).ok());
  pair.run();
  CHECK_EQ(pair.a.poll().size(), 1u);
  CHECK(local == remote);
  CHECK(pair.b.adapter->dereg_mr(far.handle).ok());

  Packet repeat;
  repeat.bth.opcode = make_opcode(OpcodeTransport::RC, Operation::RDMA_READ_REQUEST);
  repeat.bth.destination_qpn = qb;
  repeat.bth.psn = kPsn;
  repeat.bth.ack_request = true;
  repeat.info = &opcode_info(repeat.bth.opcode);
  repeat.reth = {wr.remote_address, far.rkey, 64};
  std::vector<std::uint8_t> bytes(64);
  bytes.resize(encode_headers(repeat, bytes));
  Route route;
  route.source = pair.a.adapter->config().gids[0];
  route.destination = pair.b.adapter->config().gids[0];
  const std::size_t end = bytes.size();
  bytes.resize(end + kIcrcBytes);
  append_icrc(route, ByteSpan(bytes).first(end));
  CHECK_EQ(std::string(pair.b.adapter->receive(route, bytes, pair.now_ns).verdict), "");
  pair.run();
  QpInit init;
  CHECK(pair.b.adapter->query_qp(qb, init).value.qp_state == QpState::RTS);
  CHECK(pair.a.adapter->query_qp(qa, init).value.qp_state == QpState::RTS);
  CHECK_EQ(pair.b.adapter->counters().duplicate_request, 1u);
}

}  // namespace
}  // namespace softhca::testing
