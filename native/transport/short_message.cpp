// Short messages: SENDs and WRITEs of one packet, on queue pairs that have nothing else to do. What
// is done for them is what is done for any packet, without being ready for all the others. Every
// "no" in here leaves things as they were and the message to the general way, which alone knows how
// to wait, to repeat and to refuse. Here is how one leaves within an adapter, over the wire and
// from a mapped queue; short_run.cpp has those to other adapters of this host, and
// short_receive.cpp how they are received.

#include <algorithm>
#include <cstring>

#include "transport/queue_pair.hpp"
#include "transport/short_request.hpp"
#include "wire/psn.hpp"

namespace softhca {
namespace {

bool is_short(const SendWqe& wqe, std::uint32_t mtu) {
  return may_be_short(wqe.opcode) && wqe.length <= std::min(mtu, kLocalCopiedBytes) &&
         !wqe.started && wqe.refused == Reason::NONE;
}

}  // namespace

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
  describe_short(qp_, wqe, packet);
  packet.psn = next_psn_;
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
  describe_short(qp_, wqe, packet);
  packet.psn = next_psn_;
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

}  // namespace softhca
