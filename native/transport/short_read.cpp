// READs from another adapter of this host: asked for while they are posted, and answered as a
// whole. As with short messages (short_message.cpp), every "no" in here leaves things as they were
// and the packet to the general way.

#include <algorithm>

#include "transport/lent_bytes.hpp"
#include "transport/queue_pair.hpp"
#include "wire/psn.hpp"

namespace softhca {
namespace {

// What can be refused when it is posted is left to who refuses it.
bool is_simple_read(const SendWr& wr) {
  constexpr std::uint32_t kFlags = kSendFence | kSendSignaled | kSendSolicited;
  return wr.opcode == WrOpcode::RDMA_READ && (wr.send_flags & ~kFlags) == 0 &&
         wr.sges.size() == 1 && wr.sges[0].length > 0 && wr.refused == Reason::NONE;
}

}  // namespace

// --- who reads

// Posts a READ that one request asks for, and lets that leave. False: it is not posted.
bool Requester::ask_next(const SendWr& wr, std::uint64_t cqe) {
  if (!is_simple_read(wr) || qp_.sq.full() || window_left() <= 0 ||
      reads_.size() >= qp_.attr.max_rd_atomic ||
      ((wr.send_flags & kSendFence) != 0 && !reads_.empty())) {
    return false;
  }
  const Sge& sge = wr.sges[0];
  const std::uint32_t psns = sge.length / qp_.mtu() + (sge.length % qp_.mtu() != 0 ? 1 : 0);
  const std::uint32_t chunk = read_chunk();
  if (psns > chunk) return false;
  const ShortPacket packet{
      .opcode = kReadRequestOpcode,
      .migrated = qp_.migration.request_bit(),
      .ack_request = true,
      .pkey = qp_.pkey,
      .destination_qpn = qp_.attr.dest_qp_num,
      .psn = next_psn_,
      .reth = {wr.remote_address, wr.rkey, sge.length},
      .payload = {},
  };
  if (qp_.local->send_short({&packet, 1}) == 0) return false;
  SendWqe& wqe = qp_.sq.next_entry();
  wqe.describe(wr, cqe, sge.length);
  wqe.asked_inside = false;
  wqe.read_chunk = chunk;
  qp_.sq.push_started(sge, packet.psn, psns);
  left_alone(packet, psns);
  reads_.push_back({packet.psn, next_psn_, true});
  return true;
}

// Where the bytes of this request go, if the answer is to it, and all of what it asked for; else
// null.
const std::uint8_t* Requester::place_of(const WholeAnswer& packet, std::uint64_t index) {
  const std::uint32_t psn = packet.acknowledge.psn;
  const SendWqe& wqe = qp_.sq.at(index);
  const std::uint32_t end_psn = psn_add(psn, packet.psns);
  if (!wqe.is_read() || !wqe.started || wqe.first_psn != psn || wqe.psn_count != packet.psns ||
      packet.psns > wqe.read_chunk || packet.payload.size() != wqe.length ||
      psn_distance(end_psn, highest_psn_) < 0) {
    return nullptr;
  }
  return qp_.services.memory.plain_entry(qp_.init.pd, qp_.sq.sges(index), 0, wqe.length,
                                         kAccessLocalWrite);
}

bool Requester::take_answer(const WholeAnswer& packet, AddressSpace& from) {
  const std::uint32_t psn = packet.acknowledge.psn;
  if (qp_.sq.empty() || psn != unacked_psn_ || !under_way(psn)) return false;
  const std::uint8_t* const to = place_of(packet, qp_.sq.oldest());
  if (to == nullptr || !fetches_apart(to, from, packet.payload)) return false;
  timer_.answered(qp_.peer_is_adapter);
  progress(psn_add(psn, packet.psns));
  return true;
}

// Answers are to READs that follow each other.
std::uint8_t* Requester::place_ahead(const WholeAnswer& packet, LookAhead& ahead) {
  const std::uint32_t psn = packet.acknowledge.psn;
  const std::uint64_t index = qp_.sq.oldest() + ahead.answers;
  if (ahead.psns != 0 || index >= qp_.sq.tail() || !under_way(psn) || packet.payload.empty() ||
      (ahead.answers == 0 && psn != unacked_psn_)) {
    return nullptr;
  }
  const std::uint8_t* const to = place_of(packet, index);
  if (to != nullptr) ++ahead.answers;
  return const_cast<std::uint8_t*>(to);
}

std::uint8_t* QueuePair::place_ahead(const WholeAnswer& packet, const Route& from,
                                     LookAhead& ahead) {
  return admits_answer(packet.acknowledge, from) ? requester.place_ahead(packet, ahead) : nullptr;
}

bool QueuePair::receive_answer(const WholeAnswer& packet, AddressSpace& from_space,
                               const Route& from) {
  if (!admits_answer(packet.acknowledge, from) || !requester.take_answer(packet, from_space)) {
    return false;
  }
  count(&Counters::rcvd_pkts, packet.psns);
  count(&Counters::rcvd_bytes, packet.wire_bytes());
  return true;
}

// --- whose memory is read

bool QueuePair::receive_read(const ShortPacket& packet, const Route& from) {
  if (!admits_short(packet, from) || !responder.take_read(packet)) return false;
  took_short({&packet, 1});
  return true;
}

// Atomics behind a READ have to be hidden from it.
bool Responder::only_reads_wait() const {
  return std::ranges::all_of(
      replies_, [](const Reply& reply) { return reply.kind == ReplyKind::READ && !reply.repeats; });
}

bool Responder::take_read(const ShortPacket& packet) {
  const Reth& reth = packet.reth;
  if (!is_between_messages() || !only_reads_wait() || packet.psn != expected_psn_ ||
      (qp_.attr.qp_access_flags & kAccessRemoteRead) == 0 || resources_.empty() ||
      owes_answer(next_resource_) || reth.length == 0 || reth.length > kMaxMessageBytes ||
      qp_.services.memory.plain(qp_.init.pd, reth.rkey, reth.virtual_address, reth.length,
                                kAccessRemoteRead) == nullptr) {
    return false;
  }
  who_ = {qp_.init.pd, qp_.qpn};
  nak_outstanding_ = false;
  const Resource& resource = accept_read(packet.psn, reth);
  expected_psn_ = psn_add(expected_psn_, resource.psn_count);
  msn_ = psn_add(msn_, 1);
  qp_.services.schedule(qp_);
  return true;
}

bool QueuePair::next_is_answer(WholeAnswer& packet, std::uint32_t& rkey) const {
  const bool answers =
      state() == QpState::RTS || state() == QpState::RTR || state() == QpState::SQD;
  if (init.type != QpType::RC || !answers || congestion != nullptr || copies_payload ||
      requester.may_have_packets() || !responder.next_is_whole(packet, rkey)) {
    return false;
  }
  packet.acknowledge.migrated = migration.request_bit();
  packet.acknowledge.pkey = pkey;
  packet.acknowledge.destination_qpn = attr.dest_qp_num;
  return true;
}

bool Responder::next_is_whole(WholeAnswer& packet, std::uint32_t& rkey) const {
  if (replies_.empty() || !only_reads_wait()) return false;
  const Reply& reply = replies_.front();
  const Resource& resource = resources_[reply.resource];
  if (reply.next_packet != 0 || reply.end_packet != resource.psn_count ||
      resource.length > kLocalPacketBytes || resource.length == 0) {
    return false;
  }
  const std::uint8_t* const from = qp_.services.memory.plain(
      resource.who.pd, resource.rkey, resource.address, resource.length, kAccessRemoteRead);
  if (from == nullptr) return false;
  packet.acknowledge.psn = resource.first_psn;
  packet.acknowledge.msn = resource.msn;
  packet.psns = resource.psn_count;
  packet.payload = {from, resource.length};
  rkey = resource.rkey;
  return true;
}

void QueuePair::sent_answer(const WholeAnswer& packet) {
  responder.sent_whole();
  took_turn(true);
  count(&Counters::sent_pkts, packet.psns);
  count(&Counters::sent_bytes, packet.wire_bytes());
}

void Responder::sent_whole() {
  resources_[replies_.front().resource].replying = false;
  replies_.pop_front();
}

}  // namespace softhca
