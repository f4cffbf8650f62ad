// Short messages between adapters of a host: SENDs and WRITEs of one packet, on queue pairs that
// have nothing else to do. What is done for them is what is done for any packet, without being
// ready for all the others. Every "no" in here leaves things as they were and the message to the
// general way, which alone knows how to wait, to repeat and to refuse.

#include <algorithm>
#include <cstring>

#include "transport/queue_pair.hpp"
#include "wire/psn.hpp"

namespace softhca {
namespace {

bool is_short(const SendWqe& wqe, std::uint32_t mtu) {
  const bool plain = wqe.opcode == WrOpcode::SEND || wqe.opcode == WrOpcode::SEND_WITH_IMM ||
                     wqe.opcode == WrOpcode::RDMA_WRITE ||
                     wqe.opcode == WrOpcode::RDMA_WRITE_WITH_IMM;
  return plain && wqe.length <= std::min(mtu, kLocalCopiedBytes) && !wqe.started &&
         wqe.refused == Reason::NONE;
}

Operation operation_of(WrOpcode opcode) {
  switch (opcode) {
    case WrOpcode::SEND_WITH_IMM:
      return Operation::SEND_ONLY_WITH_IMMEDIATE;
    case WrOpcode::RDMA_WRITE:
      return Operation::RDMA_WRITE_ONLY;
    case WrOpcode::RDMA_WRITE_WITH_IMM:
      return Operation::RDMA_WRITE_ONLY_WITH_IMMEDIATE;
    default:
      return Operation::SEND_ONLY;
  }
}

bool has_room_for(std::span<const Sge> sges, std::size_t bytes) {
  std::uint64_t room = 0;
  for (const Sge& sge : sges) room += sge.length;
  return bytes <= room;
}

}  // namespace

// --- requester

bool Requester::may_send_short() const {
  if (qp_.init.type != QpType::RC || qp_.state() != QpState::RTS || current_ + 1 != qp_.sq.tail() ||
      next_psn_ != highest_psn_ || waiting_rnr_ || probe_wanted_ || failure_.set) {
    return false;
  }
  const SendWqe& wqe = qp_.sq.at(current_);
  return is_short(wqe, qp_.mtu()) && (!wqe.fence() || reads_.empty()) &&
         psn_distance(unacked_psn_, next_psn_) < static_cast<std::int32_t>(window());
}

bool Requester::fill_short(LocalPacket& out, ByteSpan room) {
  const std::uint64_t index = current_;
  SendWqe& wqe = qp_.sq.at(index);
  const ByteSpan payload = room.first(wqe.length);
  if (wqe.is_inline()) {
    if (!payload.empty())
      std::memcpy(payload.data(), qp_.sq.inline_bytes(index).data(), wqe.length);
  } else if (!qp_.services.memory.gather(qp_.init.pd, qp_.sq.sges(index), 0, payload).ok()) {
    return false;
  }
  wqe.started = true;
  wqe.first_psn = next_psn_;
  wqe.psn_count = 1;
  const bool asks = is_waited_for(wqe) || since_ack_request_ + 1 >= kAckRequestEvery;
  since_ack_request_ = asks ? 0 : since_ack_request_ + 1;
  Packet& packet = out.packet;
  packet.bth.opcode = make_opcode(OpcodeTransport::RC, operation_of(wqe.opcode));
  packet.bth.solicited = wqe.solicited() && wqe.opcode != WrOpcode::RDMA_WRITE;
  packet.bth.migrated = qp_.migration.request_bit();
  packet.bth.pkey = qp_.pkey;
  packet.bth.destination_qpn = qp_.attr.dest_qp_num;
  packet.bth.ack_request = asks;
  packet.bth.psn = next_psn_;
  packet.info = &opcode_info(packet.bth.opcode);
  packet.reth = {wqe.remote_address, wqe.rkey, static_cast<std::uint32_t>(wqe.length)};
  packet.immediate = wqe.immediate;
  packet.payload = payload;
  out.route = qp_.route;
  out.qpn = qp_.qpn;
  next_psn_ = highest_psn_ = psn_add(next_psn_, 1);
  ++current_;
  if (!timer_.running()) timer_.restart(qp_.services.time.late_ns());
  qp_.count(&Counters::sent_pkts);
  qp_.count(&Counters::sent_bytes, wire_bytes(packet));
  return true;
}

void Requester::on_plain_acknowledge(std::uint32_t psn) {
  timer_.answered();
  if (under_way(psn) && !acknowledge_until(psn_add(psn, 1))) response_lost();
}

// --- responder

bool Responder::may_take_short(const Packet& packet) const {
  const OpcodeInfo& info = *packet.info;
  const bool only_acknowledgements_wait =
      replies_.empty() || (replies_.size() == 1 && acknowledges_next());
  return info.has(kOnly) && info.has(kSend | kWrite) && !info.has(kHasIeth) && packet.psns == 1 &&
         packet.pieces.empty() && packet.payload.size() <= qp_.mtu() &&
         packet.bth.psn == expected_psn_ && in_progress_ == InProgress::NOTHING &&
         only_acknowledgements_wait && qp_.init.type == QpType::RC &&
         (qp_.state() != QpState::RTR || peer_seen_) && qp_.services.observer == nullptr;
}

// The bytes to where they belong. Should that be refused, the general way refuses it once more.
bool Responder::place_short(const Packet& packet) {
  MemoryTable& memory = qp_.services.memory;
  const ByteView payload = packet.payload;
  if (packet.info->has(kSend)) {
    const std::span<const Sge> sges = qp_.rq.front_sges();
    return payload.empty() || (has_room_for(sges, payload.size()) &&
                               memory.scatter(qp_.init.pd, sges, 0, payload).ok());
  }
  return packet.reth.length == payload.size() &&
         (qp_.attr.qp_access_flags & kAccessRemoteWrite) != 0 &&
         (payload.empty() || memory
                                 .write_remote({qp_.init.pd, qp_.qpn}, packet.reth.rkey,
                                               packet.reth.virtual_address, payload)
                                 .ok());
}

Responder::Short Responder::take_short(const Packet& packet) {
  if (!may_take_short(packet)) return Short::NOT_TAKEN;
  const bool consumes = packet.info->has(kSend | kHasImmDt);
  if (consumes && (qp_.queues.srq != nullptr || has_receive_ || qp_.rq.empty())) {
    return Short::NOT_TAKEN;
  }
  if (!place_short(packet)) return Short::NOT_TAKEN;
  qp_.count(packet.info->has(kSend) ? &Counters::rx_send_requests : &Counters::rx_write_requests);
  nak_outstanding_ = false;
  expected_psn_ = psn_add(expected_psn_, 1);
  msn_ = psn_add(msn_, 1);
  message_bytes_ = static_cast<std::uint32_t>(packet.payload.size());
  if (consumes) {
    qp_.rq.pop_front(receive_.wr_id, receive_.cqe);
    receive_cq_ = qp_.queues.recv_cq;
    complete_receive(packet);
  }
  if (packet.bth.ack_request) return Short::OWES_ACKNOWLEDGE;
  acknowledge_some_day();
  return Short::TAKEN;
}

bool Responder::acknowledges_at_once(std::uint32_t psn) {
  if (!replies_.empty()) return false;
  acknowledged_psn_ = psn;
  acknowledge_at_ns_ = kNever;
  return true;
}

}  // namespace softhca
