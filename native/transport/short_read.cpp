// READs from another adapter of this host: asked for while they are posted, and answered as a
// whole. As with short messages (short_message.cpp), every "no" in here leaves things as they were
// and the packet to the general way.

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
      .opcode = make_opcode(OpcodeTransport::RC, Operation::RDMA_READ_REQUEST),
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

bool Requester::take_answer(const WholeAnswer& packet, AddressSpace& from) {
  const std::uint32_t psn = packet.acknowledge.psn;
  if (qp_.sq.empty() || psn != unacked_psn_ || !under_way(psn)) return false;
  const std::uint64_t index = qp_.sq.oldest();
  const SendWqe& wqe = qp_.sq.at(index);
  const std::uint32_t end_psn = psn_add(psn, packet.psns);
  if (!wqe.is_read() || !wqe.started || wqe.first_psn != psn || wqe.psn_count != packet.psns ||
      packet.psns > wqe.read_chunk || packet.payload.size() != wqe.length ||
      psn_distance(end_psn, highest_psn_) < 0) {
    return false;
  }
  const std::uint8_t* const to = qp_.services.memory.plain_entry(qp_.init.pd, qp_.sq.sges(index), 0,
                                                                 wqe.length, kAccessLocalWrite);
  if (to == nullptr || !fetches_apart(to, from, packet.payload)) return false;
  timer_.answered(qp_.peer_is_adapter);
  progress(end_psn);
  return true;
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

}  // namespace softhca
