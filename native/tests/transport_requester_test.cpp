// Corners of the requester that a well-behaved peer on a good wire never reaches (IBTA Vol
// 1, 9.7.3, 9.9.2).

#include "tests/check.hpp"
#include "tests/scripted_peer.hpp"
#include "transport/retry_timer.hpp"
#include "wire/psn.hpp"

namespace softhca::testing {
namespace {

constexpr std::uint32_t kFirst = ScriptedPeer::kPsnHere;

WcStatus only_status(const std::vector<Completion>& completions, std::size_t at = 0) {
  CHECK(at < completions.size());
  return completions[at].status;
}

TEST("requester: a repeat that fails locally is forgotten when the first sending was received") {
  ScriptedPeer peer;
  std::vector<std::uint8_t> fleeting(64);
  const MrInfo gone = peer.a.reg(fleeting);
  for (std::uint64_t id = 0; id < 4; ++id) {
    SendWr wr = peer.wr(WrOpcode::SEND, 8, id);
    if (id == 2) {
      wr.sges = {{reinterpret_cast<std::uint64_t>(fleeting.data()), 8, gone.lkey}};
    }
    peer.post(wr);
  }
  CHECK_EQ(peer.take().size(), 4u);
  CHECK(peer.a.adapter->dereg_mr(gone.handle).ok());
  peer.wait();
  CHECK_EQ(peer.take().size(), 2u);       // The third cannot be repeated: its memory is gone.
  peer.answer(kSyndromeAck, kFirst + 2);  // But only the ACK was late.
  CHECK_EQ(peer.a.poll().size(), 3u);
  CHECK(peer.state() == QpState::RTS);
  const std::vector<ScriptedPeer::Sent> repeated = peer.take();
  CHECK_EQ(repeated.size(), 1u);
  CHECK_EQ(repeated[0].psn, psn_add(kFirst, 3));
  // And a peer that then falls silent is given up, instead of being waited for without end.
  for (int waits = 0; waits < 1000 && peer.state() == QpState::RTS; ++waits) {
    peer.wait();
    peer.take();
  }
  CHECK(only_status(peer.a.poll()) == WcStatus::RETRY_EXC_ERR);
}

TEST("requester: a READ that has begun goes on when SQD lowers max_rd_atomic to zero") {
  ScriptedPeer peer;
  peer.post(peer.wr(WrOpcode::RDMA_READ, 256 * 3, 1));
  CHECK_EQ(peer.take().size(), 1u);
  CHECK(peer.modify(QpState::SQD).ok());
  QpAttr none;
  none.max_rd_atomic = 0;
  CHECK(peer.modify(QpState::SQD, kQpMaxQpRdAtomic, none).ok());
  peer.wait();
  CHECK_EQ(peer.take().size(), 1u);
  Packet response = peer.packet(Operation::RDMA_READ_RESPONSE_FIRST, kFirst);
  peer.inject(response, 256);
  response = peer.packet(Operation::RDMA_READ_RESPONSE_MIDDLE, kFirst + 1);
  peer.inject(response, 256);
  response = peer.packet(Operation::RDMA_READ_RESPONSE_LAST, kFirst + 2);
  peer.inject(response, 256);
  CHECK(only_status(peer.a.poll()) == WcStatus::SUCCESS);
}

TEST("requester: the wish for SQ_DRAINED holds for one drain") {
  ScriptedPeer peer;
  QpAttr wish;
  wish.en_sqd_async_notify = true;
  CHECK(peer.modify(QpState::SQD, kQpEnSqdAsyncNotify, wish).ok());
  CHECK(peer.events() == std::vector<EventType>{EventType::SQ_DRAINED});
  CHECK(peer.modify(QpState::RTS).ok());
  CHECK(peer.modify(QpState::SQD).ok());
  CHECK(peer.events().empty());
}

TEST("requester: a request gets its turn although the peer reads without end") {
  ScriptedPeer peer;
  peer.read(ScriptedPeer::kPsnThere, 256 * 200);
  peer.post(peer.wr(WrOpcode::SEND, 256 * 3));
  const std::vector<ScriptedPeer::Sent> sent = peer.take(8);
  std::size_t requests = 0;
  for (const ScriptedPeer::Sent& one : sent) {
    requests += one.packet.info->has(kRequest) ? 1 : 0;
  }
  CHECK_EQ(requests, 3u);
}

TEST("requester: an empty inline message has nothing to copy") {
  ScriptedPeer peer;
  SendWr wr = peer.wr(WrOpcode::SEND, 0);
  wr.send_flags |= kSendInline;
  wr.sges.clear();
  peer.post(wr);
  const std::vector<ScriptedPeer::Sent> sent = peer.take();
  CHECK_EQ(sent.size(), 1u);
  CHECK_EQ(sent[0].payload_bytes, 0u);
}

TEST("requester: an empty inline message on a queue pair without inline room") {
  Pair pair(seed());
  QpInit init;
  init.pd = pair.a.pd;
  init.send_cq = init.recv_cq = pair.a.cq;
  init.cap = {4, 4, 1, 1, 0};
  const std::uint32_t qpn = pair.a.adapter->create_qp(init).value;
  const std::uint32_t other = pair.b.qp();
  CHECK(pair.connect(true, qpn, QpType::RC, other, 1, 2).ok());
  CHECK(pair.connect(false, other, QpType::RC, qpn, 2, 1).ok());
  CHECK(pair.recv(false, other, {}).ok());
  SendWr wr;
  wr.send_flags = kSendInline | kSendSignaled;
  CHECK(pair.send(true, qpn, wr).ok());
  pair.run();
  CHECK(only_status(pair.a.poll()) == WcStatus::SUCCESS);
  CHECK(only_status(pair.b.poll()) == WcStatus::SUCCESS);
}

TEST("requester: after an answered probe in SQD the rest is repeated at once") {
  ScriptedPeer peer;
  peer.post(peer.wr(WrOpcode::SEND, 256 * 6, 1));
  peer.take(1);
  peer.now_ns += 1000;
  peer.answer(kSyndromeAck, kFirst);  // The peer lives: probes are allowed from now on.
  CHECK_EQ(peer.take().size(), 5u);
  CHECK(peer.modify(QpState::SQD).ok());
  peer.wait();
  CHECK_EQ(peer.take().size(), 1u);
  peer.answer(kSyndromeAck, kFirst + 1);
  CHECK_EQ(peer.take().size(), 4u);
}

TEST("requester: a NAK before the repeat after a time-out has left says nothing new") {
  ScriptedPeer peer;
  for (std::uint64_t id = 0; id < 2; ++id) peer.post(peer.wr(WrOpcode::SEND, 8, id));
  peer.take();
  peer.wait();
  peer.answer(kSyndromeNak, kFirst);
  CHECK_EQ(peer.take().size(), 2u);
  CHECK_EQ(peer.a.adapter->counters().packet_seq_err, 0u);
  peer.answer(kSyndromeNak, kFirst);
  CHECK_EQ(peer.take().size(), 2u);
  CHECK_EQ(peer.a.adapter->counters().packet_seq_err, 1u);
}

TEST("requester: an answer skipped over before the repeat has left is not missed") {
  ScriptedPeer peer;
  peer.post(peer.wr(WrOpcode::RDMA_READ, 8, 1));
  peer.post(peer.wr(WrOpcode::SEND, 8, 2));
  peer.take();
  peer.wait();
  peer.answer(kSyndromeAck, kFirst + 1);
  CHECK_EQ(peer.take().size(), 2u);
  CHECK_EQ(peer.a.adapter->counters().implied_nak_seq_err, 0u);
}

// --- timers

// A process that was stopped for longer than the time-out finds the answer in its socket.
TEST("requester: a time-out is not believed before what is unread") {
  ScriptedPeer peer;
  peer.post(peer.wr(WrOpcode::SEND, 8, 1));
  CHECK_EQ(peer.take().size(), 1u);
  peer.now_ns += 10'000'000'000;
  peer.a.adapter->advance(peer.now_ns, true);
  CHECK_EQ(peer.take().size(), 0u);
  CHECK(peer.a.adapter->next_deadline_ns() < peer.now_ns + RetryTimer::kSmallestTimeoutNs);
  peer.answer(kSyndromeAck, kFirst);
  CHECK(only_status(peer.a.poll()) == WcStatus::SUCCESS);
  CHECK_EQ(peer.a.adapter->counters().local_ack_timeout_err, 0u);
}

TEST("requester: packets that never end put no time-out off for long") {
  ScriptedPeer peer;
  peer.post(peer.wr(WrOpcode::SEND, 8, 1));
  peer.take();
  const std::uint64_t due_ns = peer.a.adapter->next_deadline_ns();
  while (peer.a.adapter->counters().local_ack_timeout_err == 0) {
    peer.now_ns = peer.a.adapter->next_deadline_ns();
    CHECK(peer.now_ns - due_ns <= RetryTimer::kSmallestTimeoutNs);
    peer.a.adapter->advance(peer.now_ns, true);
  }
  CHECK_EQ(peer.take().size(), 1u);
}

TEST("requester: a destroyed queue pair leaves no deadline behind") {
  ScriptedPeer peer;
  peer.post(peer.wr(WrOpcode::SEND, 8));
  peer.take();
  CHECK(peer.a.adapter->next_deadline_ns() != kNever);
  CHECK(peer.a.adapter->destroy_qp(peer.qpn).ok());
  CHECK_EQ(peer.a.adapter->next_deadline_ns(), kNever);
}

TEST("requester: deadlines that were overtaken by RNR delays do not pile up") {
  ScriptedPeer peer;
  peer.post(peer.wr(WrOpcode::SEND, 8));
  for (int turn = 0; turn < 1000; ++turn) {
    CHECK(!peer.take().empty());
    peer.answer(kSyndromeRnrNak | 1, kFirst);
    peer.wait();
  }
  CHECK(peer.modify(QpState::RESET).ok());
  CHECK_EQ(peer.a.adapter->next_deadline_ns(), kNever);
}

TEST("requester: an RNR delay that ends in another state than RTS moves nothing") {
  for (const QpState to : {QpState::ERR, QpState::RESET}) {
    ScriptedPeer peer;
    peer.post(peer.wr(WrOpcode::SEND, 8));
    peer.take();
    peer.answer(kSyndromeRnrNak | 1, kFirst);
    CHECK(peer.modify(to).ok());
    CHECK_EQ(peer.a.adapter->next_deadline_ns(), kNever);
    peer.a.adapter->advance(peer.now_ns + 1'000'000'000);
    CHECK(peer.take().empty());
  }
}

TEST("requester: an RNR delay goes on in SQD, and the message is finished there") {
  ScriptedPeer peer;
  peer.post(peer.wr(WrOpcode::SEND, 8));
  peer.take();
  const std::uint64_t asked_ns = peer.now_ns + rnr_delay_ns(14);
  peer.answer(kSyndromeRnrNak | 14, kFirst);
  CHECK(peer.modify(QpState::SQD).ok());
  peer.a.adapter->advance(asked_ns - 1);
  CHECK(peer.take().empty());
  peer.now_ns = asked_ns;
  peer.a.adapter->advance(asked_ns);
  CHECK_EQ(peer.take().size(), 1u);
  peer.answer(kSyndromeAck, kFirst);
  CHECK(!peer.attributes().sq_draining);
}

}  // namespace
}  // namespace softhca::testing
