// The packets inside a long message: a BTH and a full payload, and of them there are most where
// bytes are what matters. As with short messages (short_message.cpp), every "no" in here leaves
// things as they were and the packet to the general way.

#include "transport/queue_pair.hpp"
#include "wire/packet.hpp"
#include "wire/psn.hpp"

namespace softhca {
namespace {

bool has_inner_packets(const SendWqe& wqe) {
  switch (wqe.opcode) {
    case WrOpcode::SEND:
    case WrOpcode::SEND_WITH_IMM:
    case WrOpcode::SEND_WITH_INV:
    case WrOpcode::RDMA_WRITE:
    case WrOpcode::RDMA_WRITE_WITH_IMM:
      return !wqe.is_inline();
    default:
      return false;
  }
}

}  // namespace

// The next packet has others of its message before and behind it, and goes for the first time.
bool Requester::next_is_inner() const {
  if (current_packet_ == 0 || qp_.init.type != QpType::RC || qp_.state() != QpState::RTS ||
      next_psn_ != highest_psn_ || waiting_rnr_ || probe_wanted_ || failure_.set) {
    return false;
  }
  const SendWqe& wqe = qp_.sq.at(current_);
  return current_packet_ + 1 < wqe.psn_count && has_inner_packets(wqe) &&
         psn_distance(unacked_psn_, next_psn_) < static_cast<std::int32_t>(window());
}

// Into a datagram.
bool Requester::send_inner(Outlet& out) {
  if (!next_is_inner() || qp_.services.observer != nullptr) return false;
  const SendWqe& wqe = qp_.sq.at(current_);
  const std::uint32_t bytes = qp_.mtu();
  const std::uint8_t* const from = qp_.services.memory.plain_entry(
      qp_.init.pd, qp_.sq.sges(current_), std::uint64_t{current_packet_} * bytes, bytes, 0);
  if (from == nullptr) return false;
  const std::uint32_t since_ack_request = since_ack_request_;
  const std::uint32_t psn = next_psn_;
  const bool asks = wants_ack_on_wire(false, psn, false);
  const Operation operation =
      wqe.is_write() ? Operation::RDMA_WRITE_MIDDLE : Operation::SEND_MIDDLE;
  encode_bth({.opcode = make_opcode(OpcodeTransport::RC, operation),
              .migrated = qp_.migration.request_bit(),
              .pkey = qp_.pkey,
              .destination_qpn = qp_.attr.dest_qp_num,
              .ack_request = asks,
              .psn = psn},
             out.buffer.data());
  if (!qp_.fetch_and_seal(kBthBytes, bytes, 0, from, out)) {
    since_ack_request_ = since_ack_request;
    return false;
  }
  out.wire->has_wr = true;
  out.wire->wr_id = wqe.wr_id;
  next_psn_ = highest_psn_ = psn_add(psn, 1);
  ++current_packet_;
  after_send(psn, 1, asks, false);
  return true;
}

}  // namespace softhca
