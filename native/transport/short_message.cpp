// Short messages: SENDs and WRITEs of one packet, on queue pairs that have nothing else to do. What
// is done for them is what is done for any packet, without being ready for all the others. Every
// "no" in here leaves things as they were and the message to the general way, which alone knows how
// to wait, to repeat and to refuse.

#include <algorithm>
#include <cstring>

#include "memory/guarded_access.hpp"
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

// A copy that can be made again, by a way that knows what to do about bytes that are not there. Not
// of bytes over themselves, which that way does in two steps.
bool copies_apart(const std::uint8_t* to, ByteView from) {
  const auto distance = static_cast<std::uint64_t>(to - from.data());
  if (distance < from.size() || -distance < from.size()) return false;
  return guarded_copy(const_cast<std::uint8_t*>(to), from.data(), from.size()) == 0;
}

bool has_room_for(std::span<const Sge> sges, std::size_t bytes) {
  std::uint64_t room = 0;
  for (const Sge& sge : sges) room += sge.length;
  return bytes <= room;
}

}  // namespace

// --- requester
//
// What both ways have in common is compiled into each of them.

[[gnu::always_inline]] inline bool Requester::next_is_short() const {
  if (qp_.init.type != QpType::RC || qp_.state() != QpState::RTS || current_ == qp_.sq.tail() ||
      next_psn_ != highest_psn_ || waiting_rnr_ || probe_wanted_ || failure_.set) {
    return false;
  }
  const SendWqe& wqe = qp_.sq.at(current_);
  return is_short(wqe, qp_.mtu()) && (!wqe.fence() || reads_.empty()) &&
         psn_distance(unacked_psn_, next_psn_) < static_cast<std::int32_t>(window());
}

bool Requester::may_send_short() const { return current_ + 1 == qp_.sq.tail() && next_is_short(); }

// Without its payload and what is to be decided about it.
[[gnu::always_inline]] inline void Requester::describe_short(ShortPacket& packet) const {
  const SendWqe& wqe = qp_.sq.at(current_);
  packet.opcode = make_opcode(OpcodeTransport::RC, operation_of(wqe.opcode));
  packet.solicited = wqe.solicited() && wqe.opcode != WrOpcode::RDMA_WRITE;
  packet.migrated = qp_.migration.request_bit();
  packet.pkey = qp_.pkey;
  packet.destination_qpn = qp_.attr.dest_qp_num;
  packet.psn = next_psn_;
  packet.immediate = wqe.immediate;
  packet.reth = {wqe.remote_address, wqe.rkey, static_cast<std::uint32_t>(wqe.length)};
}

bool Requester::make_short(ShortPacket& packet, ByteSpan room) const {
  const SendWqe& wqe = qp_.sq.at(current_);
  MemoryTable& memory = qp_.services.memory;
  const std::span<const Sge> sges = qp_.sq.sges(current_);
  const std::size_t bytes = wqe.length;
  if (wqe.is_inline()) {
    packet.payload = qp_.sq.inline_bytes(current_).first(bytes);
  } else if (const std::uint8_t* from = memory.plain_entry(qp_.init.pd, sges, 0, bytes, 0);
             from != nullptr) {
    packet.payload = {from, bytes};
  } else if (memory.gather(qp_.init.pd, sges, 0, room.first(bytes)).ok()) {
    packet.payload = room.first(bytes);
  } else {
    return false;
  }
  describe_short(packet);
  packet.ack_request = asks_at_its_end(wqe);
  return true;
}

[[gnu::always_inline]] inline void Requester::leave_short() {
  SendWqe& wqe = qp_.sq.at(current_);
  wqe.started = true;
  wqe.first_psn = next_psn_;
  wqe.psn_count = 1;
  next_psn_ = highest_psn_ = psn_add(next_psn_, 1);
  ++current_;
}

void Requester::sent_short(const ShortPacket& packet) {
  leave_short();
  since_ack_request_ = packet.ack_request ? 0 : since_ack_request_ + 1;
  qp_.count(&Counters::sent_pkts);
  qp_.count(&Counters::sent_bytes, packet.wire_bytes());
}

// Into a datagram. Padding is not for short packets.
bool Requester::send_short(Outlet& out) {
  if (qp_.services.observer != nullptr || !next_is_short()) return false;
  const SendWqe& wqe = qp_.sq.at(current_);
  if (wqe.length % 4 != 0) return false;
  ShortPacket packet;
  describe_short(packet);
  const std::size_t header_bytes = packet.header_bytes();
  const ByteSpan payload = out.buffer.subspan(header_bytes, wqe.length);
  if (!copy_short(payload)) return false;
  packet.ack_request = wants_ack_on_wire(asks_at_its_end(wqe), packet.psn, false);
  encode_short(packet, out.buffer.data());
  qp_.seal(header_bytes + payload.size(), out);
  out.wire->has_wr = true;
  out.wire->wr_id = wqe.wr_id;
  leave_short();
  after_send(packet.psn, 1, packet.ack_request, false);
  return true;
}

bool Requester::copy_short(ByteSpan to) {
  if (qp_.sq.at(current_).is_inline()) {
    std::ranges::copy(qp_.sq.inline_bytes(current_).first(to.size()), to.begin());
    return true;
  }
  MemoryTable& memory = qp_.services.memory;
  memory.read_ahead.forget();  // Before it was posted its memory was the user's.
  return memory.gather(qp_.init.pd, qp_.sq.sges(current_), 0, to).ok();
}

void Requester::start_timer() { timer_.restart(qp_.services.time.late_ns()); }

void Requester::on_plain_acknowledge(std::uint32_t psn) {
  timer_.answered(qp_.peer_is_adapter);
  if (!under_way(psn)) {
    on_answered_again();
  } else if (!acknowledge_until(psn_add(psn, 1))) {
    response_lost();
  }
}

// --- responder

bool QueuePair::admits_short(const ShortPacket& packet, const Route& from) const {
  const bool receives =
      state() == QpState::RTS || state() == QpState::RTR || state() == QpState::SQD;
  return init.type == QpType::RC && receives && attr.path_mig_state == MigState::MIGRATED &&
         from.source == route.destination && from.destination == route.source &&
         pkeys_match(packet.pkey, pkey);
}

bool QueuePair::receive_short(const ShortPacket& packet, const Route& from) {
  if (!admits_short(packet, from)) return false;
  const Responder::Short taken = responder.take_short(packet);
  if (taken == Responder::Short::NOT_TAKEN) return false;
  took_short(packet);
  if (taken == Responder::Short::OWES_ACKNOWLEDGE) responder.push_acknowledge(packet.psn);
  return true;
}

bool Responder::may_take_short(const ShortPacket& packet) {
  const bool only_acknowledgements_wait =
      replies_.empty() || (replies_.size() == 1 && acknowledges_next());
  const bool may_write =
      !packet.is_write() || (packet.reth.length == packet.payload.size() &&
                             (qp_.attr.qp_access_flags & kAccessRemoteWrite) != 0);
  const bool finds_receive =
      !packet.consumes_receive() || (qp_.queues.srq == nullptr && !has_receive_ && !qp_.rq.empty());
  return packet.psn == expected_psn_ && packet.payload.size() <= qp_.mtu() &&
         in_progress_ == InProgress::NOTHING && only_acknowledgements_wait &&
         qp_.init.type == QpType::RC && (qp_.state() != QpState::RTR || peer_seen_) &&
         qp_.services.observer == nullptr && may_write && finds_receive;
}

// The bytes to where they belong. Should that be refused, the general way refuses it once more.
bool Responder::place_short(const ShortPacket& packet) {
  MemoryTable& memory = qp_.services.memory;
  const ByteView payload = packet.payload;
  if (payload.empty()) return true;
  if (packet.is_write()) {
    const std::uint64_t address = packet.reth.virtual_address;
    const std::uint8_t* to =
        memory.plain(qp_.init.pd, packet.reth.rkey, address, payload.size(), kAccessRemoteWrite);
    return to != nullptr
               ? copies_apart(to, payload)
               : memory.write_remote({qp_.init.pd, qp_.qpn}, packet.reth.rkey, address, payload)
                     .ok();
  }
  const std::span<const Sge> sges = qp_.rq.front_sges();
  const std::uint8_t* to =
      memory.plain_entry(qp_.init.pd, sges, 0, payload.size(), kAccessLocalWrite);
  if (to != nullptr) return copies_apart(to, payload);
  return has_room_for(sges, payload.size()) && memory.scatter(qp_.init.pd, sges, 0, payload).ok();
}

Responder::Short Responder::finish_short(const ShortPacket& packet) {
  qp_.count(packet.is_write() ? &Counters::rx_write_requests : &Counters::rx_send_requests);
  nak_outstanding_ = false;
  expected_psn_ = psn_add(expected_psn_, 1);
  msn_ = psn_add(msn_, 1);
  message_bytes_ = static_cast<std::uint32_t>(packet.payload.size());
  if (packet.consumes_receive() && !complete_short(packet)) {
    disown_message(1);
    return Short::TAKEN;
  }
  if (packet.ack_request) return Short::OWES_ACKNOWLEDGE;
  acknowledge_some_day();
  return Short::TAKEN;
}

Responder::Short Responder::take_short(const ShortPacket& packet) {
  return may_take_short(packet) && place_short(packet) ? finish_short(packet) : Short::NOT_TAKEN;
}

// False: nobody will ever see the completion.
bool Responder::complete_short(const ShortPacket& packet) {
  Services& services = qp_.services;
  CompletionQueue& cq = *qp_.queues.recv_cq;
  Completion aside;
  Completion* const room = services.begin_quietly(cq);
  Completion& completion = room != nullptr ? *room : aside;
  completion = {};
  qp_.rq.pop_front(completion.wr_id, completion.cqe);
  completion.opcode = packet.is_write() ? WcOpcode::RECV_RDMA_WITH_IMM : WcOpcode::RECV;
  completion.byte_len = message_bytes_;
  completion.qpn = qp_.qpn;
  completion.pkey_index = qp_.attr.pkey_index;
  completion.is_receive = true;
  completion.solicited = packet.solicited;
  completion.psn = packet.psn;
  if (packet.has_immediate()) {
    completion.wc_flags = kWcWithImm;
    completion.immediate_or_rkey = packet.immediate;
  }
  if (room != nullptr) {
    services.end_quietly(cq, completion);
    return true;
  }
  services.complete(cq, completion);
  return !cq.overflowed();
}

bool Responder::acknowledges_at_once(std::uint32_t psn) {
  if (!replies_.empty()) return false;
  acknowledged_psn_ = psn;
  acknowledge_at_ns_ = kNever;
  return true;
}

}  // namespace softhca
