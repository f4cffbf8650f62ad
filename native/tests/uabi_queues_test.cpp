// Programs that post and poll in mapped rings: every operation, every service type.

#include <string>

#include "tests/check.hpp"
#include "tests/mapped_program.hpp"

namespace softhca::testing {
namespace {

struct Buffer {
  std::vector<std::uint8_t> bytes;
  MrInfo mr;

  Buffer(Host& host, std::size_t size, std::uint8_t fill = 0) : bytes(size, fill) {
    mr = host.reg(bytes, 0x1f);
  }
  Sge sge(std::size_t at = 0, std::size_t length = ~std::size_t{0}) const {
    return {address(at), static_cast<std::uint32_t>(std::min(length, bytes.size() - at)), mr.lkey};
  }
  std::uint64_t address(std::size_t at = 0) const {
    return reinterpret_cast<std::uint64_t>(bytes.data() + at);
  }
};

std::uint8_t* begin_rdma(ProgramQp& qp, std::uint64_t wr_id, WrOpcode opcode,
                         const std::vector<Sge>& sges, const Buffer& remote) {
  std::uint8_t* element = Program::begin_send(qp, wr_id, opcode, sges);
  put_field(element, 24, remote.address());
  put_field(element, 32, remote.mr.rkey);
  return element;
}

ProgramCompletion only(Program& program) {
  const auto polled = program.poll();
  CHECK_EQ(polled.size(), 1u);
  return polled[0];
}

TEST("uabi: a SEND from ring to ring, by RC and UC") {
  for (const QpType type : {QpType::RC, QpType::UC}) {
    ProgramPair pair(type);
    Buffer from(pair.left.host, 3000, 7);
    Buffer to(pair.right.host, 4000);
    Program::post_receive(*pair.b.rq, 11, {to.sge(0, 1000), to.sge(1000)});
    std::uint8_t* element =
        Program::begin_send(pair.a, 22, WrOpcode::SEND_WITH_IMM, {from.sge(0, 100), from.sge(100)});
    put_field(element, 20, __builtin_bswap32(0x01020304u));
    CHECK(pair.left.end_send(pair.a).ok());
    pair.run();
    const ProgramCompletion sent = only(pair.left);
    CHECK_EQ(sent.wr_id, 22u);
    CHECK(sent.status == WcStatus::SUCCESS && sent.opcode == WcOpcode::SEND);
    CHECK_EQ(sent.qpn, pair.a.qpn);
    const ProgramCompletion received = only(pair.right);
    CHECK_EQ(received.wr_id, 11u);
    CHECK(received.status == WcStatus::SUCCESS && received.opcode == WcOpcode::RECV);
    CHECK_EQ(received.byte_len, 3000u);
    CHECK_EQ(received.wc_flags, std::uint32_t{kWcWithImm});
    CHECK_EQ(__builtin_bswap32(received.extra), 0x01020304u);
    CHECK_EQ(to.bytes[2999], 7);
    CHECK_EQ(to.bytes[3000], 0);
    CHECK(pair.a.sq->empty() && pair.b.rq->empty());
  }
}

TEST("uabi: WRITE, READ and atomics") {
  ProgramPair pair;
  Buffer mine(pair.left.host, 8192, 5);
  Buffer theirs(pair.right.host, 8192, 9);
  begin_rdma(pair.a, 1, WrOpcode::RDMA_WRITE, {mine.sge(0, 5000)}, theirs);
  pair.a.sq->produce();
  begin_rdma(pair.a, 2, WrOpcode::RDMA_READ, {mine.sge(1, 6000)}, theirs);
  CHECK(pair.left.end_send(pair.a).ok());
  pair.run();
  CHECK_EQ(pair.left.poll().size(), 2u);
  CHECK_EQ(theirs.bytes[4999], 5);
  CHECK_EQ(theirs.bytes[5000], 9);
  CHECK_EQ(mine.bytes[5000], 5);
  CHECK_EQ(mine.bytes[5001], 9);

  put_field<std::uint64_t>(theirs.bytes.data(), 0, 40);
  std::uint8_t* add =
      Program::begin_send(pair.a, 3, WrOpcode::ATOMIC_FETCH_AND_ADD, {mine.sge(0, 8)});
  put_field(add, 24, theirs.address());
  put_field<std::uint64_t>(add, 32, 2);
  put_field(add, 48, theirs.mr.rkey);
  pair.a.sq->produce();
  std::uint8_t* swap =
      Program::begin_send(pair.a, 4, WrOpcode::ATOMIC_CMP_AND_SWP, {mine.sge(8, 8)});
  put_field(swap, 24, theirs.address());
  put_field<std::uint64_t>(swap, 32, 42);
  put_field<std::uint64_t>(swap, 40, 99);
  put_field(swap, 48, theirs.mr.rkey);
  CHECK(pair.left.end_send(pair.a).ok());
  pair.run();
  const auto polled = pair.left.poll();
  CHECK_EQ(polled.size(), 2u);
  CHECK(polled[0].opcode == WcOpcode::FETCH_ADD && polled[0].byte_len == 8);
  CHECK(polled[1].opcode == WcOpcode::COMP_SWAP);
  CHECK_EQ(get_field<std::uint64_t>(mine.bytes.data(), 0), 40u);
  CHECK_EQ(get_field<std::uint64_t>(mine.bytes.data(), 8), 42u);
  CHECK_EQ(get_field<std::uint64_t>(theirs.bytes.data(), 0), 99u);
}

TEST("uabi: inline data lies in the ring, by flag or by length alone") {
  for (const bool by_flag : {true, false}) {
    ProgramPair pair;
    Buffer theirs(pair.right.host, 64);
    std::uint8_t* element = begin_rdma(pair.a, 1, WrOpcode::RDMA_WRITE, {}, theirs);
    put_field(element, 16, by_flag ? kSendSignaled | kSendInline : kSendSignaled);
    put_field<std::uint32_t>(element, 184, 5);
    std::memcpy(element + kSendElementHeader, "hello", 5);
    CHECK(pair.left.end_send(pair.a).ok());
    std::memset(element, 0xee, Program::kSendElement);  // It was taken.
    pair.run();
    CHECK(only(pair.left).status == WcStatus::SUCCESS);
    CHECK_EQ(std::string(theirs.bytes.begin(), theirs.bytes.begin() + 5), "hello");
  }
}

TEST("uabi: ATOMIC_WRITE and FLUSH carry their parameters in the element") {
  ProgramPair pair;
  Buffer theirs(pair.right.host, 64);
  theirs.mr = pair.right.host.reg(theirs.bytes, 0x1f | kAccessFlushGlobal);
  QpAttr attr;
  attr.qp_access_flags = 0xf | kAccessFlushGlobal;
  CHECK(pair.b.qpn != 0);
  CHECK(pair.right.host.adapter->modify_qp(pair.b.qpn, attr, kQpAccessFlags, pair.now_ns).ok());
  std::uint8_t* element = begin_rdma(pair.a, 1, WrOpcode::ATOMIC_WRITE, {}, theirs);
  put_field<std::uint32_t>(element, 184, 8);
  put_field<std::uint64_t>(element, kSendElementHeader, 0x1122334455667788);
  pair.a.sq->produce();
  element = Program::begin_send(pair.a, 2, WrOpcode::FLUSH, {});
  put_field(element, 24, theirs.address());
  put_field(element, 36, theirs.mr.rkey);
  element[40] = 1;
  put_field<std::uint32_t>(element, 184, 64);
  CHECK(pair.left.end_send(pair.a).ok());
  pair.run();
  const auto polled = pair.left.poll();
  CHECK_EQ(polled.size(), 2u);
  CHECK(polled[0].status == WcStatus::SUCCESS && polled[0].opcode == WcOpcode::ATOMIC_WRITE);
  CHECK(polled[1].status == WcStatus::SUCCESS && polled[1].opcode == WcOpcode::FLUSH);
  CHECK_EQ(get_field<std::uint64_t>(theirs.bytes.data(), 0), 0x1122334455667788u);
}

TEST("uabi: windows are bound by any of their keys and invalidated") {
  ProgramPair pair;
  Buffer mine(pair.left.host, 64, 3);
  Buffer theirs(pair.right.host, 64);
  const std::uint32_t window =
      pair.right.host.adapter->alloc_mw(pair.right.host.pd, MwType::TYPE_2).value;
  std::uint32_t key = window;
  for (int round = 0; round < 3; ++round) {
    std::uint8_t* bind = Program::begin_send(pair.b, 1, WrOpcode::BIND_MW, {});
    put_field(bind, 24, theirs.address());
    put_field<std::uint64_t>(bind, 32, 64);
    put_field(bind, 40, theirs.mr.lkey);
    put_field(bind, 44, key);
    key = (key & ~0xffu) | ((key + 1) & 0xff);
    put_field(bind, 48, key);
    put_field<std::uint32_t>(bind, 52, kAccessRemoteWrite);
    CHECK(pair.right.end_send(pair.b).ok());
    pair.run();
    const ProgramCompletion bound = only(pair.right);
    CHECK(bound.status == WcStatus::SUCCESS && bound.opcode == WcOpcode::BIND_MW);
    std::uint8_t* write = begin_rdma(pair.a, 2, WrOpcode::RDMA_WRITE, {mine.sge()}, theirs);
    put_field(write, 32, key);
    CHECK(pair.left.end_send(pair.a).ok());
    pair.run();
    CHECK(only(pair.left).status == WcStatus::SUCCESS);
    std::uint8_t* invalidate = Program::begin_send(pair.b, 3, WrOpcode::LOCAL_INV, {});
    put_field(invalidate, 20, key);
    CHECK(pair.right.end_send(pair.b).ok());
    pair.run();
    CHECK(only(pair.right).status == WcStatus::SUCCESS);
  }
}

TEST("uabi: datagrams by address handle; somebody else's handle fails the request") {
  ProgramPair pair(QpType::UD);
  AhAttr to_right;
  to_right.dgid = pair.b.qpn != 0 ? pair.right.host.adapter->config().gids[0] : Gid{};
  const std::uint32_t ah = pair.left.host.adapter->create_ah(pair.left.host.pd, to_right).value;
  const std::uint32_t other_pd = pair.left.host.adapter->alloc_pd().value;
  const std::uint32_t foreign = pair.left.host.adapter->create_ah(other_pd, to_right).value;
  Buffer from(pair.left.host, 100, 4);
  Buffer to(pair.right.host, 140);
  for (const std::uint32_t handle : {ah, foreign}) {
    Program::post_receive(*pair.b.rq, 1, {to.sge()});
    std::uint8_t* element = Program::begin_send(pair.a, 2, WrOpcode::SEND, {from.sge()});
    put_field(element, 24, pair.b.qpn);
    put_field<std::uint32_t>(element, 28, 0x11111111);
    put_field(element, 36, handle);
    CHECK(pair.left.end_send(pair.a).ok());
    pair.run();
    const auto received = pair.right.poll();
    CHECK_EQ(received.size(), handle == ah ? 1u : 0u);
    CHECK(only(pair.left).status == (handle == ah ? WcStatus::SUCCESS : WcStatus::LOC_QP_OP_ERR));
    if (handle == ah) {
      CHECK_EQ(received[0].byte_len, 140u);
      CHECK_EQ(received[0].source_qpn, pair.a.qpn);
      CHECK_EQ(received[0].wc_flags, std::uint32_t{kWcGrh});
      CHECK_EQ(to.bytes[139], 4);
    }
  }
}

TEST("uabi: a place in the send queue is free before its completion can be seen, signaled or not") {
  ProgramPair pair;
  Buffer mine(pair.left.host, 8);
  Buffer theirs(pair.right.host, 8);
  for (int round = 0; round < 100; ++round) {
    while (!pair.a.sq->full()) {
      std::uint8_t* element = begin_rdma(pair.a, 1, WrOpcode::RDMA_WRITE, {mine.sge()}, theirs);
      put_field<std::uint32_t>(element, 16, 0);
      pair.a.sq->produce();
    }
    CHECK(pair.left.ring(pair.a).ok());
    pair.run();
    CHECK(pair.a.sq->empty());
  }
  CHECK(pair.left.poll().empty());
}

TEST("uabi: receives that come late are found by the retries of the sender") {
  ProgramPair pair;
  Buffer from(pair.left.host, 10, 1);
  Buffer to(pair.right.host, 10);
  Program::begin_send(pair.a, 1, WrOpcode::SEND, {from.sge()});
  CHECK(pair.left.end_send(pair.a).ok());
  pair.run(100);
  CHECK(pair.left.poll().empty());
  Program::post_receive(*pair.b.rq, 2, {to.sge()});
  pair.run();
  CHECK(only(pair.left).status == WcStatus::SUCCESS);
  CHECK_EQ(only(pair.right).wr_id, 2u);
}

TEST("uabi: doorbells below RTS are refused; what was posted runs later") {
  ProgramPair pair;
  Buffer mine(pair.left.host, 8, 1);
  Buffer theirs(pair.right.host, 8);
  ProgramQp fresh = pair.left.qp(QpType::RC);
  begin_rdma(fresh, 1, WrOpcode::RDMA_WRITE, {mine.sge()}, theirs);
  CHECK_EQ(pair.left.end_send(fresh).error, EINVAL);
  ProgramQp peer = pair.right.qp(QpType::RC);
  CHECK(pair.connect(true, fresh.qpn, QpType::RC, peer.qpn, 1, 2).ok());
  CHECK(pair.connect(false, peer.qpn, QpType::RC, fresh.qpn, 2, 1).ok());
  CHECK(pair.left.ring(fresh).ok());
  pair.run();
  CHECK(only(pair.left).status == WcStatus::SUCCESS);
}

TEST("uabi: requests that are none complete in error, in their place") {
  ProgramPair pair;
  Buffer mine(pair.left.host, 8, 1);
  Buffer theirs(pair.right.host, 8);
  begin_rdma(pair.a, 1, WrOpcode::RDMA_WRITE, {mine.sge()}, theirs);
  pair.a.sq->produce();
  std::uint8_t* element = begin_rdma(pair.a, 2, WrOpcode::RDMA_WRITE, {mine.sge()}, theirs);
  put_field<std::uint32_t>(element, 12, 77);
  put_field<std::uint32_t>(element, 16, 0);
  pair.a.sq->produce();
  begin_rdma(pair.a, 3, WrOpcode::RDMA_WRITE, {mine.sge()}, theirs);
  CHECK(pair.left.end_send(pair.a).ok());
  pair.run();
  const auto polled = pair.left.poll();
  CHECK_EQ(polled.size(), 3u);
  CHECK(polled[0].status == WcStatus::SUCCESS);
  CHECK_EQ(polled[1].wr_id, 2u);
  CHECK(polled[1].status == WcStatus::LOC_QP_OP_ERR);
  CHECK(polled[2].status == WcStatus::WR_FLUSH_ERR);
  CHECK(pair.a.sq->empty());
}

TEST("uabi: ERR flushes both queues in order, and what is posted later at the next doorbell") {
  ProgramPair pair;
  Buffer mine(pair.left.host, 8);
  for (const std::uint64_t wr_id : {1, 2, 3}) {
    Program::post_receive(*pair.a.rq, wr_id, {mine.sge()});
  }
  QpAttr attr;
  attr.qp_state = QpState::ERR;
  CHECK(pair.left.host.adapter->modify_qp(pair.a.qpn, attr, kQpState, pair.now_ns).ok());
  const auto flushed = pair.left.poll();
  CHECK_EQ(flushed.size(), 3u);
  for (std::size_t at = 0; at < flushed.size(); ++at) {
    CHECK_EQ(flushed[at].wr_id, at + 1);
    CHECK(flushed[at].status == WcStatus::WR_FLUSH_ERR);
  }
  Program::post_receive(*pair.a.rq, 4, {mine.sge()});
  Program::begin_send(pair.a, 5, WrOpcode::SEND, {mine.sge()}, 0);
  CHECK(pair.left.end_send(pair.a).ok());
  const auto later = pair.left.poll();
  CHECK_EQ(later.size(), 2u);
  CHECK_EQ(later[0].wr_id, 5u);
  CHECK_EQ(later[1].wr_id, 4u);
}

TEST("uabi: ERR flushes what was posted too early to be rung, in its place") {
  ProgramPair pair;
  Buffer mine(pair.left.host, 8);
  ProgramQp fresh = pair.left.qp(QpType::RC);
  for (const std::uint64_t wr_id : {1, 2}) {
    Program::begin_send(fresh, wr_id, WrOpcode::SEND, {mine.sge()}, 0);
    CHECK_EQ(pair.left.end_send(fresh).error, EINVAL);
  }
  Adapter& adapter = *pair.left.host.adapter;
  QpAttr attr;
  attr.qp_state = QpState::INIT;
  const std::uint32_t init = kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags;
  CHECK(adapter.modify_qp(fresh.qpn, attr, init, pair.now_ns).ok());
  attr.qp_state = QpState::ERR;
  CHECK(adapter.modify_qp(fresh.qpn, attr, kQpState, pair.now_ns).ok());
  Program::begin_send(fresh, 3, WrOpcode::SEND, {mine.sge()}, 0);
  fresh.sq->produce();
  Program::post_receive(*fresh.rq, 4, {mine.sge()});
  CHECK(adapter.modify_qp(fresh.qpn, attr, kQpState, pair.now_ns).ok());
  const auto flushed = pair.left.poll();
  CHECK_EQ(flushed.size(), 4u);
  for (std::size_t at = 0; at < flushed.size(); ++at) {
    CHECK_EQ(flushed[at].wr_id, at + 1);
    CHECK(flushed[at].status == WcStatus::WR_FLUSH_ERR);
  }
  CHECK(fresh.sq->empty() && fresh.rq->empty());
}

TEST("uabi: RESET empties both queues without completions, wherever their indices are") {
  ProgramPair pair;
  Buffer mine(pair.left.host, 8);
  QpAttr attr;
  for (int round = 0; round < 5; ++round) {
    for (int at = 0; at < 7; ++at) {
      Program::post_receive(*pair.a.rq, 1, {mine.sge()});
      Program::begin_send(pair.a, 2, WrOpcode::SEND, {mine.sge()});
      pair.a.sq->produce();
    }
    if (round % 2 == 0) {
      CHECK(pair.left.ring(pair.a).ok());
    }
    attr.qp_state = QpState::RESET;
    CHECK(pair.left.host.adapter->modify_qp(pair.a.qpn, attr, kQpState, pair.now_ns).ok());
    CHECK(pair.right.host.adapter->modify_qp(pair.b.qpn, attr, kQpState, pair.now_ns).ok());
    CHECK(pair.a.sq->empty() && pair.a.rq->empty());
    CHECK(pair.left.poll().empty());
    pair.join(QpType::RC);
  }
}

TEST("uabi: a shared receive queue; its limit counts what waits in the ring") {
  ProgramPair pair;
  Adapter& adapter = *pair.right.host.adapter;
  const std::uint32_t srq = adapter.create_srq(pair.right.host.pd, {15, 4, 0}, 0, 0).value;
  ProgramRing ring(pair.right.file, Program::kReceiveElement, 16);
  CHECK(adapter.feed_srq(srq, std::make_shared<MappedReceiveQueue>(ring.ring)).ok());
  ProgramQp taker = pair.right.qp(QpType::RC, srq);
  ProgramQp giver = pair.left.qp(QpType::RC);
  CHECK(pair.connect(true, giver.qpn, QpType::RC, taker.qpn, 1, 2).ok());
  CHECK(pair.connect(false, taker.qpn, QpType::RC, giver.qpn, 2, 1).ok());
  Buffer from(pair.left.host, 8, 1);
  Buffer to(pair.right.host, 8);
  for (const std::uint64_t wr_id : {1, 2, 3}) {
    Program::post_receive(ring, wr_id, {to.sge()});
  }
  CHECK(adapter.modify_srq(srq, {0, 0, 2}, kSrqLimit).ok());
  AsyncEvent event;
  for (const std::uint64_t wr_id : {1, 2}) {
    CHECK(!adapter.next_event(event) || event.type == EventType::COMM_EST);
    Program::begin_send(giver, 1, WrOpcode::SEND, {from.sge()});
    CHECK(pair.left.end_send(giver).ok());
    pair.run();
    CHECK_EQ(only(pair.right).wr_id, wr_id);
  }
  CHECK(adapter.next_event(event));
  CHECK(event.type == EventType::SRQ_LIMIT_REACHED);
  CHECK_EQ(event.object, srq);
}

TEST("uabi: a ring that is full of completions is an overflow") {
  ProgramPair pair;
  Program narrow(pair, true, 3);
  ProgramQp qp = narrow.qp(QpType::RC);
  ProgramQp peer = pair.right.qp(QpType::RC);
  CHECK(pair.connect(true, qp.qpn, QpType::RC, peer.qpn, 1, 2).ok());
  CHECK(pair.connect(false, peer.qpn, QpType::RC, qp.qpn, 2, 1).ok());
  for (int at = 0; at < 4; ++at) {
    Program::begin_send(qp, 1, WrOpcode::RDMA_WRITE, {});
    CHECK(narrow.end_send(qp).ok());
  }
  pair.run();
  AsyncEvent event;
  CHECK(pair.left.host.adapter->next_event(event));
  CHECK(event.type == EventType::CQ_ERR);
  CHECK_EQ(narrow.poll().size(), 3u);
}

TEST("uabi: completions that wait go along when their ring is replaced") {
  ProgramPair pair;
  for (int at = 0; at < 10; ++at) {
    Program::begin_send(pair.a, static_cast<std::uint64_t>(at), WrOpcode::RDMA_WRITE, {});
    CHECK(pair.left.end_send(pair.a).ok());
  }
  pair.run();
  pair.left.cq_ring->consume();
  Adapter& adapter = *pair.left.host.adapter;
  auto small = std::make_unique<ProgramRing>(pair.left.file, kCompletionBytes, 8);
  CHECK_EQ(adapter.lead_cq(pair.left.cq, std::make_shared<MappedCompletions>(small->ring)).error,
           EINVAL);
  auto next = std::make_unique<ProgramRing>(pair.left.file, kCompletionBytes, 16);
  CHECK(adapter.lead_cq(pair.left.cq, std::make_shared<MappedCompletions>(next->ring)).ok());
  pair.left.cq_ring = std::move(next);
  Program::begin_send(pair.a, 10, WrOpcode::RDMA_WRITE, {});
  CHECK(pair.left.end_send(pair.a).ok());
  pair.run();
  const auto polled = pair.left.poll();
  CHECK_EQ(polled.size(), 10u);
  for (std::size_t at = 0; at < polled.size(); ++at) {
    CHECK_EQ(polled[at].wr_id, at + 1);
  }
}

}  // namespace
}  // namespace softhca::testing
