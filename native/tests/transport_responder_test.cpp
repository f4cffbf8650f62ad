// Corners of the responder that only a hostile peer or an unlucky wire reaches (IBTA Vol 1, 9.7.4,
// 9.7.5).

#include "tests/check.hpp"
#include "tests/scripted_peer.hpp"
#include "wire/psn.hpp"

namespace softhca::testing {
namespace {

constexpr std::uint32_t kFirst = ScriptedPeer::kPsnThere;

std::uint64_t value_at(const ScriptedPeer& peer, std::size_t offset = 0) {
  std::uint64_t value = 0;
  std::memcpy(&value, peer.memory.data() + offset, 8);
  return value;
}

TEST("responder: a flood of refused, duplicate and early requests leaves few replies") {
  ScriptedPeer peer;
  peer.receive(8);
  peer.request(Operation::SEND_ONLY, kFirst);
  for (int turn = 0; turn < 1000; ++turn) {
    peer.request(Operation::SEND_ONLY, kFirst + 1);  // No receive is posted: RNR NAK.
    peer.request(Operation::SEND_ONLY, kFirst);      // Duplicate: ACK.
    peer.request(Operation::SEND_ONLY, kFirst + 5);  // A gap: NAK.
  }
  CHECK(peer.take().size() <= 2);
}

TEST("responder: gaps that are closed again and again leave few replies") {
  ScriptedPeer peer;
  for (std::uint32_t turn = 0; turn < 1000; ++turn) {
    peer.request(Operation::RDMA_WRITE_ONLY, kFirst + turn + 1);
    peer.request(Operation::RDMA_WRITE_ONLY, kFirst + turn);
  }
  const std::vector<ScriptedPeer::Sent> sent = peer.take();
  CHECK_EQ(sent.size(), 2u);
  CHECK_EQ(sent[1].syndrome, kSyndromeAck);
  CHECK_EQ(sent[1].psn, psn_add(kFirst, 999));
}

TEST("responder: the answer to a duplicate does not replace a newer one that waits") {
  ScriptedPeer peer;
  peer.request(Operation::RDMA_WRITE_ONLY, kFirst);
  peer.read(kFirst + 1, 8);
  CHECK_EQ(peer.take().size(), 2u);
  peer.request(Operation::RDMA_WRITE_ONLY, kFirst + 2);
  peer.request(Operation::RDMA_WRITE_ONLY, kFirst);
  const std::vector<ScriptedPeer::Sent> sent = peer.take();
  CHECK_EQ(sent.size(), 1u);
  CHECK_EQ(sent[0].psn, psn_add(kFirst, 2));
}

TEST("responder: duplicates of a READ leave one answer") {
  ScriptedPeer peer;
  peer.read(kFirst, 256 * 4);
  CHECK_EQ(peer.take().size(), 4u);
  for (int turn = 0; turn < 1000; ++turn) {
    peer.read(kFirst, 256 * 4);
  }
  CHECK_EQ(peer.take().size(), 4u);
}

TEST("responder: a repeat of a READ gives no more bytes than it asks for") {
  ScriptedPeer peer;
  peer.read(kFirst, 256 * 4);
  CHECK_EQ(peer.take().size(), 4u);
  peer.read(kFirst, 300);
  const std::vector<ScriptedPeer::Sent> sent = peer.take();
  CHECK_EQ(sent.size(), 2u);
  CHECK(sent[1].operation == Operation::RDMA_READ_RESPONSE_LAST);
  CHECK_EQ(sent[1].payload_bytes, 44u);
}

TEST("responder: an atomic that waits behind a READ runs before what follows it") {
  ScriptedPeer peer;
  peer.receive(0);
  peer.read(kFirst, 256 * 4);
  peer.request(Operation::FETCH_ADD, kFirst + 4);
  CHECK_EQ(value_at(peer), 0u);
  peer.request(Operation::SEND_ONLY, kFirst + 5);
  CHECK_EQ(value_at(peer), 1u);
  CHECK_EQ(peer.a.poll().size(), 1u);
  const std::vector<ScriptedPeer::Sent> sent = peer.take();
  CHECK_EQ(sent.size(), 6u);
  CHECK(sent[4].operation == Operation::ATOMIC_ACKNOWLEDGE);
  CHECK_EQ(sent[4].packet.atomic_original, 0u);
  CHECK_EQ(value_at(peer), 1u);
}

TEST("responder: an atomic does not overtake one that waited behind a READ") {
  ScriptedPeer peer;
  peer.read(kFirst, 256);
  peer.request(Operation::FETCH_ADD, kFirst + 1);
  CHECK_EQ(peer.take(1).size(), 1u);  // The READ is answered, the atomic has not run yet.
  peer.request(Operation::FETCH_ADD, kFirst + 2);
  const std::vector<ScriptedPeer::Sent> sent = peer.take();
  CHECK_EQ(sent.size(), 2u);
  CHECK_EQ(sent[0].packet.atomic_original, 0u);
  CHECK_EQ(sent[1].packet.atomic_original, 1u);
}

TEST("responder: an atomic whose region went while it waited refuses what follows it") {
  ScriptedPeer peer;
  std::vector<std::uint8_t> fleeting(64);
  const MrInfo gone = peer.a.reg(fleeting);
  peer.receive(8, 5);
  peer.read(kFirst, 256 * 2);
  Packet atomic = peer.packet(Operation::FETCH_ADD, kFirst + 2);
  atomic.atomic.virtual_address = reinterpret_cast<std::uint64_t>(fleeting.data());
  atomic.atomic.rkey = gone.rkey;
  peer.inject(atomic);
  CHECK(peer.a.adapter->dereg_mr(gone.handle).ok());
  peer.request(Operation::SEND_ONLY, kFirst + 3);
  const std::vector<ScriptedPeer::Sent> sent = peer.take();
  CHECK_EQ(sent.size(), 3u);
  CHECK_EQ(sent[2].psn, psn_add(kFirst, 2));
  CHECK_EQ(sent[2].syndrome, kSyndromeNak | 2);
  const std::vector<Completion> received = peer.a.poll();
  CHECK_EQ(received.size(), 1u);
  CHECK(received[0].status == WcStatus::WR_FLUSH_ERR);
}

TEST("responder: a READ whose region went is refused, though what follows it was refused first") {
  ScriptedPeer peer;
  peer.read(kFirst, 256 * 4);
  CHECK_EQ(peer.take(1).size(), 1u);
  peer.request(Operation::RDMA_WRITE_LAST, kFirst + 4);
  CHECK(peer.state() == QpState::ERR);
  CHECK(peer.a.adapter->dereg_mr(peer.mr.handle).ok());
  const std::vector<ScriptedPeer::Sent> sent = peer.take();
  CHECK_EQ(sent.size(), 1u);
  CHECK_EQ(sent[0].psn, psn_add(kFirst, 1));
  CHECK_EQ(sent[0].syndrome, kSyndromeNak | 2);
}

TEST("responder: answers owed before a refused invalidate are still sent") {
  ScriptedPeer peer;
  peer.receive(8);
  peer.receive(8);
  peer.request(Operation::SEND_ONLY, kFirst);
  peer.request(Operation::SEND_ONLY_WITH_INVALIDATE, kFirst + 1);
  const std::vector<ScriptedPeer::Sent> sent = peer.take();
  CHECK_EQ(sent.size(), 1u);
  CHECK_EQ(sent[0].psn, kFirst);
  CHECK_EQ(sent[0].syndrome, kSyndromeAck);
}

TEST("responder: fewer resources keep the newest, more keep all") {
  ScriptedPeer peer;
  for (std::uint32_t turn = 0; turn < 6; ++turn) {
    peer.request(Operation::FETCH_ADD, kFirst + turn);
    CHECK_EQ(peer.take().size(), 1u);
  }
  const auto resize = [&peer](std::uint8_t count) {
    QpAttr attr;
    attr.max_dest_rd_atomic = count;
    CHECK(peer.modify(QpState::SQD, kQpMaxDestRdAtomic, attr).ok());
  };
  const auto remembered = [&peer] {
    std::vector<std::uint64_t> originals;
    for (std::uint32_t turn = 0; turn < 6; ++turn) {
      peer.request(Operation::FETCH_ADD, kFirst + turn);
      for (const ScriptedPeer::Sent& sent : peer.take()) {
        originals.push_back(sent.packet.atomic_original);
      }
    }
    return originals;
  };
  CHECK(peer.modify(QpState::SQD).ok());
  CHECK(remembered() == (std::vector<std::uint64_t>{2, 3, 4, 5}));
  resize(7);
  CHECK(remembered() == (std::vector<std::uint64_t>{2, 3, 4, 5}));
  resize(3);
  CHECK(remembered() == (std::vector<std::uint64_t>{3, 4, 5}));
  resize(0);
  CHECK(remembered().empty());
  resize(2);
  peer.request(Operation::FETCH_ADD, kFirst + 6);
  CHECK_EQ(peer.take().size(), 1u);
  CHECK_EQ(value_at(peer), 7u);
}

TEST("responder: resources whose answers wait survive fewer resources") {
  ScriptedPeer peer;
  for (std::uint32_t turn = 0; turn < 3; ++turn) {
    peer.request(Operation::FETCH_ADD, kFirst + turn);
    CHECK_EQ(peer.take().size(), 1u);
  }
  CHECK(peer.modify(QpState::SQD).ok());
  peer.read(kFirst + 3, 256 * 2);
  peer.read(kFirst + 5, 256 * 2);
  peer.request(Operation::FETCH_ADD, kFirst + 2);
  CHECK_EQ(peer.take(1).size(), 1u);
  QpAttr attr;
  attr.max_dest_rd_atomic = 1;
  CHECK(peer.modify(QpState::SQD, kQpMaxDestRdAtomic, attr).ok());
  const std::vector<ScriptedPeer::Sent> sent = peer.take();
  CHECK_EQ(sent.size(), 4u);
  CHECK_EQ(sent[1].psn, psn_add(kFirst, 5));
  CHECK_EQ(sent[2].psn, psn_add(kFirst, 6));
  CHECK_EQ(sent[3].packet.atomic_original, 2u);
}

// --- acknowledgements that nobody asked for

TEST("responder: an adapter that asks for no acknowledgement gets one a little later") {
  ScriptedPeer peer(QpType::RC, 1, true);
  Packet write = peer.packet(Operation::RDMA_WRITE_ONLY, ScriptedPeer::kPsnThere);
  write.bth.ack_request = false;
  peer.inject(write);
  CHECK(peer.take().empty());
  peer.wait();
  CHECK_EQ(peer.take().size(), 1u);
}

TEST("responder: a program gets the acknowledgements that it asks for, and no other") {
  ScriptedPeer peer(QpType::RC, 1, true);
  peer.port = kRoceUdpPort;
  Packet write = peer.packet(Operation::RDMA_WRITE_ONLY, ScriptedPeer::kPsnThere);
  write.bth.ack_request = false;
  peer.inject(write);
  CHECK(peer.take().empty());
  CHECK_EQ(peer.a.adapter->next_deadline_ns(), kNever);
  write.bth.ack_request = true;
  write.bth.psn = psn_add(write.bth.psn, 1);
  peer.inject(write);
  const std::vector<ScriptedPeer::Sent> sent = peer.take();
  CHECK_EQ(sent.size(), 1u);
  CHECK_EQ(sent[0].psn, write.bth.psn);
}

}  // namespace
}  // namespace softhca::testing
