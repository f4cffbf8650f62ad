#include "transport/responder.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "transport/queue_pair.hpp"
#include "wire/psn.hpp"

namespace softhca {

void Responder::reset() {
  expected_psn_ = acknowledged_psn_ = msn_ = 0;
  nak_outstanding_ = peer_seen_ = false;
  refused_psn_.reset();
  in_progress_ = InProgress::NOTHING;
  acknowledge_at_ns_ = kNever;
  write_left_ = 0;
  message_bytes_ = 0;
  has_receive_ = false;
  resources_.clear();
  next_resource_ = 0;
  replies_.clear();
}

void Responder::start() {
  expected_psn_ = qp_.attr.rq_psn;
  acknowledged_psn_ = psn_add(expected_psn_, kPsnMask);
  msn_ = 0;
  resources_.assign(qp_.attr.max_dest_rd_atomic, Resource());
  next_resource_ = 0;
}

// The newest are kept, since they are those that the peer may ask for again; and those whose
// answers still wait.
void Responder::resize_resources() {
  const std::size_t wanted = qp_.attr.max_dest_rd_atomic;
  const auto before = static_cast<std::uint32_t>(resources_.size());
  // Not the ranges' own, of which clang before 16 makes nothing with GCC's library.
  std::rotate(resources_.begin(), resources_.begin() + next_resource_, resources_.end());
  for (Reply& reply : replies_) {
    if (reply.kind != ReplyKind::ACKNOWLEDGE) {
      reply.resource = (reply.resource + before - next_resource_) % before;
    }
  }
  std::uint32_t dropped = 0;
  while (before - dropped > wanted && !is_waited_for(dropped)) {
    ++dropped;
  }
  resources_.erase(resources_.begin(), resources_.begin() + dropped);
  for (Reply& reply : replies_) {
    reply.resource -= reply.kind != ReplyKind::ACKNOWLEDGE ? dropped : 0;
  }
  next_resource_ = before < wanted ? before : 0;
  if (before < wanted) {
    resources_.resize(wanted);
  }
}

// --- execution
// ----------------------------------------------------------------------------------------------------------

Responder::Step Responder::execute(const Packet& packet) {
  const OpcodeInfo& info = *packet.info;
  // What changes memory or completes a receive comes after the atomics before it, which may still
  // wait behind a READ.
  if (info.has(kSend | kWrite) && !run_waiting_atomics()) {
    return Step::STOP;
  }
  if (info.has(kSend)) {
    return execute_send(packet);
  }
  if (info.has(kWrite)) {
    return execute_write(packet);
  }
  return info.has(kReadRequest) ? execute_read(packet) : execute_atomic(packet);
}

void Responder::begin_part(const Packet& packet) {
  part_.goes_on = packet.info->has(kFirst | kMiddle);
  if (packet.info->has(kFirst | kOnly)) {
    qp_.services.memory.write_behind.flush();
    part_.lost = false;
  }
}

Responder::Step Responder::execute_send(const Packet& packet) {
  if (packet.info->has(kFirst | kOnly)) {
    qp_.count(&Counters::rx_send_requests);
    message_bytes_ = 0;
  }
  const std::uint64_t end = std::uint64_t{message_bytes_} + packet.payload_bytes();
  if (end > std::min<std::uint64_t>(receive_.capacity_bytes, kMaxMessageBytes)) {
    qp_.count(&Counters::resp_local_length_error);
    return refuse_receive(NakCode::INVALID_REQUEST, WcStatus::LOC_LEN_ERR,
                          {Reason::TOO_LONG, 0, 0, end});
  }
  begin_part(packet);
  const AccessFault fault = qp_.services.memory.scatter(receive_pd_, receive_.sges, message_bytes_,
                                                        payload_of(packet), &part_);
  if (fault.payload_gone) {
    qp_.payload_unreadable = true;
    return Step::STOP;
  }
  if (!fault.ok()) {
    return refuse_receive(NakCode::REMOTE_OPERATIONAL_ERROR, WcStatus::LOC_PROT_ERR, fault);
  }
  message_bytes_ = static_cast<std::uint32_t>(end);
  if (packet.info->has(kHasIeth)) {
    // Before the receive completes, so that who sees it may use the memory again.
    const AccessFault refused = qp_.services.memory.invalidate(who_, packet.invalidate_rkey, true);
    if (!refused.ok()) {
      // Neither NAK nor ACK (IBTA Vol 1, 9.9.6.3, class J); but one for those before it.
      acknowledge_now();
      fail_receive(WcStatus::REM_INV_REQ_ERR, refused);
      qp_.services.raise(EventType::QP_REQ_ERR, qp_.qpn);
      qp_.enter_error();
      return Step::STOP;
    }
  }
  return Step::CONTINUE;
}

Responder::Step Responder::execute_write(const Packet& packet) {
  if (packet.info->has(kHasReth)) {
    qp_.count(&Counters::rx_write_requests);
    write_address_ = packet.reth.virtual_address;
    write_rkey_ = packet.reth.rkey;
    write_left_ = packet.reth.length;
    message_bytes_ = 0;
  }
  const std::uint64_t payload_bytes = packet.payload_bytes();
  if (payload_bytes != 0) {
    begin_part(packet);
    const AccessFault fault = qp_.services.memory.write_remote(who_, write_rkey_, write_address_,
                                                               payload_of(packet), &part_);
    if (fault.payload_gone) {
      qp_.payload_unreadable = true;
      return Step::STOP;
    }
    if (!fault.ok()) {
      qp_.count(&Counters::resp_remote_access_errors);
      return refuse_request(NakCode::REMOTE_ACCESS_ERROR, fault);
    }
  }
  write_address_ += payload_bytes;
  write_left_ -= payload_bytes;
  message_bytes_ += static_cast<std::uint32_t>(payload_bytes);
  return Step::CONTINUE;
}

Responder::Step Responder::execute_read(const Packet& packet) {
  accept_read(packet.bth.psn, packet.reth);
  return Step::CONTINUE;
}

// What it leaves behind, and the answer that waits from now on.
const Responder::Resource& Responder::accept_read(std::uint32_t psn, const Reth& reth) {
  qp_.count(&Counters::rx_read_requests);
  std::uint32_t index = 0;
  Resource& resource = *take_resource(index);
  resource.is_read = true;
  resource.first_psn = psn;
  resource.psn_count =
      reth.length == 0
          ? 1
          : static_cast<std::uint32_t>((std::uint64_t{reth.length} + qp_.mtu() - 1) / qp_.mtu());
  resource.address = reth.virtual_address;
  resource.rkey = reth.rkey;
  resource.who = who_;
  resource.length = reth.length;
  resource.msn = psn_add(msn_, 1);
  Reply reply;
  reply.kind = ReplyKind::READ;
  reply.resource = index;
  reply.end_packet = resource.psn_count;
  reply.end_bytes = resource.length;
  replies_.push_back(reply);
  return resource;
}

// Atomics, ATOMIC WRITE and FLUSH: each takes a resource and is answered by one packet.
Responder::Step Responder::execute_atomic(const Packet& packet) {
  qp_.count(&Counters::rx_atomic_requests);
  Resource atomic;
  atomic.used = atomic.replying = true;
  atomic.first_psn = packet.bth.psn;
  atomic.msn = psn_add(msn_, 1);
  atomic.opcode = packet.bth.opcode;
  const bool has_reth = packet.info->has(kHasReth);
  atomic.address = has_reth ? packet.reth.virtual_address : packet.atomic.virtual_address;
  atomic.rkey = has_reth ? packet.reth.rkey : packet.atomic.rkey;
  atomic.length = has_reth ? packet.reth.length : 8;
  atomic.who = who_;
  atomic.atomic = packet.atomic;
  atomic.feth = packet.feth;
  if (packet.info->has(kAtomicWrite)) {
    std::memcpy(&atomic.value, packet.payload.data(), sizeof atomic.value);
  }
  // A READ reads when its responses leave, and an atomic behind it must not change what it sees
  // (IBTA Vol 1, table 79).
  if (!atomics_wait()) {
    const AccessFault fault = run_atomic(atomic);
    if (!fault.ok()) {
      qp_.count(&Counters::resp_remote_access_errors);
      return refuse_request(NakCode::REMOTE_ACCESS_ERROR, fault);
    }
  }
  Reply reply;
  reply.kind = ReplyKind::ATOMIC;
  *take_resource(reply.resource) = atomic;
  replies_.push_back(reply);
  return Step::CONTINUE;
}

AccessFault Responder::run_atomic(Resource& resource) {
  MemoryTable& memory = qp_.services.memory;
  const OpcodeInfo& info = opcode_info(resource.opcode);
  const AtomicEth& atomic = resource.atomic;
  resource.executed = true;
  if (info.has(kFlush)) {
    // Bytes are where every CPU sees them as soon as they are copied; a fence makes that so for
    // those that other threads of this adapter copied.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return {};
  }
  if (info.has(kAtomicWrite)) {
    return memory.atomic_write(resource.who, resource.rkey, resource.address, resource.value,
                               resource.original);
  }
  const bool swaps = opcode_operation(resource.opcode) == Operation::COMPARE_SWAP;
  if (info.has(kMasked) && swaps) {
    return memory.masked_compare_swap(
        resource.who, resource.rkey, resource.address,
        {atomic.compare, atomic.compare_mask, atomic.swap_add, atomic.swap_mask},
        resource.original);
  }
  if (info.has(kMasked)) {
    return memory.masked_fetch_add(resource.who, resource.rkey, resource.address, atomic.swap_add,
                                   atomic.compare, resource.original);
  }
  return swaps ? memory.compare_swap(resource.who, resource.rkey, resource.address, atomic.compare,
                                     atomic.swap_add, resource.original)
               : memory.fetch_add(resource.who, resource.rkey, resource.address, atomic.swap_add,
                                  resource.original);
}

// The packet is executed: its PSNs are used up, and it is acknowledged if it asks for that.
void Responder::finish_packet(const Packet& packet) {
  const OpcodeInfo& info = *packet.info;
  std::uint32_t psns = packet.psns;
  if (info.has(kReadRequest)) {
    psns = resources_[replies_.back().resource].psn_count;
  }
  expected_psn_ = psn_add(expected_psn_, psns);
  if (info.has(kFirst | kMiddle)) {
    in_progress_ = info.has(kSend) ? InProgress::SEND : InProgress::WRITE;
  } else if (!finish_message(packet)) {
    disown_message(psns);
    return;
  }
  if (info.has(kReadRequest | kTakesAtomicResource)) {
    qp_.services.schedule(qp_);
  } else if (packet.bth.ack_request && qp_.is_reliable()) {
    push_acknowledge(psn_add(packet.bth.psn, psns - 1));
  } else if (qp_.is_reliable() && in_progress_ == InProgress::NOTHING) {
    acknowledge_some_day();
  }
}

// A program that plays a peer gets the acknowledgements that it asks for.
void Responder::acknowledge_some_day() {
  if (qp_.services.lazy_acks && qp_.peer_is_adapter && acknowledge_at_ns_ == kNever) {
    acknowledge_at_ns_ = qp_.services.time.now_ns() + kLazyAckNs;
  }
}

void Responder::advance() {
  if (acknowledge_at_ns_ <= qp_.services.time.now_ns()) {
    acknowledge_now();
  }
}

// False: nobody will ever see its completion.
bool Responder::finish_message(const Packet& packet) {
  in_progress_ = InProgress::NOTHING;
  msn_ = psn_add(msn_, 1);
  if (!packet.info->has(kSend) && !packet.info->has(kHasImmDt)) {
    return true;
  }
  complete_receive(packet);
  return !receive_cq_->overflowed();
}

// Its sender must not think that it has been received. The overflow of the queue is about to take
// the queue pair to error, and those before it are still acknowledged.
void Responder::disown_message(std::uint32_t last_psns) {
  expected_psn_ = psn_add(expected_psn_, (kPsnMask + 1 - last_psns) & kPsnMask);
  msn_ = psn_add(msn_, kPsnMask);
}

void Responder::complete_receive(const Packet& packet) {
  Completion completion;
  completion.wr_id = receive_.wr_id;
  completion.cqe = receive_.cqe;
  completion.opcode = packet.info->has(kWrite) ? WcOpcode::RECV_RDMA_WITH_IMM : WcOpcode::RECV;
  completion.byte_len = message_bytes_;
  completion.qpn = qp_.qpn;
  completion.source_qpn = qp_.init.type == QpType::UD ? packet.deth.source_qpn : 0;
  completion.pkey_index = qp_.attr.pkey_index;
  completion.is_receive = true;
  completion.solicited = packet.bth.solicited;
  completion.psn = psn_add(packet.bth.psn, packet.psns - 1);
  if (packet.info->has(kHasImmDt)) {
    completion.wc_flags |= kWcWithImm;
    completion.immediate_or_rkey = packet.immediate;
  }
  if (packet.info->has(kHasIeth)) {
    completion.wc_flags |= kWcWithInv;
    completion.immediate_or_rkey = packet.invalidate_rkey;
  }
  if (qp_.init.type == QpType::UD) {
    completion.wc_flags |= kWcGrh;
    completion.ip_version = datagram_ip_version_;
  }
  has_receive_ = false;
  qp_.services.complete(*receive_cq_, completion);
}

// --- refusals
// -------------------------------------------------------------------------------------------------------------

Responder::Step Responder::refuse_request(NakCode code, const AccessFault& fault) {
  if (!qp_.is_reliable()) {
    drop_message(WcStatus::REM_ABORT_ERR, fault);
    return Step::STOP;
  }
  // Nothing changes memory once it is known that the queue pair has failed.
  if (!run_waiting_atomics()) {
    return Step::STOP;
  }
  const bool access = code == NakCode::REMOTE_ACCESS_ERROR;
  push_refusal(expected_psn_, code, fault);
  if (has_receive_) {
    fail_receive(WcStatus::REM_INV_REQ_ERR, fault);
  }
  qp_.services.raise(access ? EventType::QP_ACCESS_ERR : EventType::QP_REQ_ERR, qp_.qpn);
  qp_.enter_error();
  return Step::STOP;
}

// The receive itself is wrong or too small: it completes in error.
Responder::Step Responder::refuse_receive(NakCode code, WcStatus status, const AccessFault& fault) {
  if (!qp_.is_reliable() && status == WcStatus::LOC_LEN_ERR) {
    drop_message(status, fault);
    return Step::STOP;
  }
  fail_receive(status, fault);
  if (qp_.is_reliable()) {
    push_refusal(expected_psn_, code, fault);
  }
  qp_.enter_error();
  return Step::STOP;
}

Responder::Step Responder::send_rnr_nak(const Packet&) {
  qp_.count(&Counters::out_of_buffer);
  if (!qp_.is_reliable()) {
    drop_message(WcStatus::REM_ABORT_ERR, {});
    return Step::STOP;
  }
  nak_outstanding_ = true;
  push_nak(expected_psn_, kSyndromeRnrNak | (qp_.attr.min_rnr_timer & 0x1f));
  return Step::STOP;
}

// Unreliable services: the rest of the message is ignored.
void Responder::drop_message(WcStatus status, const AccessFault& fault) {
  qp_.count(&Counters::dropped_pkts);
  abandon_message(status, fault);
}

// A receive that the message has taken serves the next one. One of a shared queue would be lost to
// the other queue pairs until then: it completes in error, and nothing else happens to the queue
// pair (IBTA Vol 1, 9.9.3, class E).
void Responder::abandon_message(WcStatus status, const AccessFault& fault) {
  in_progress_ = InProgress::NOTHING;
  if (has_receive_ && receive_srq_ != 0) {
    fail_receive(status, fault);
  }
}

void Responder::fail_receive(WcStatus status, const AccessFault& fault) {
  Completion completion;
  completion.wr_id = receive_.wr_id;
  completion.cqe = receive_.cqe;
  completion.status = status;
  completion.opcode = WcOpcode::RECV;
  completion.qpn = qp_.qpn;
  completion.is_receive = true;
  completion.psn = expected_psn_;
  completion.reason = fault.reason;
  completion.key = fault.key;
  completion.address = fault.address;
  completion.length = fault.length;
  has_receive_ = false;
  qp_.count(status == WcStatus::WR_FLUSH_ERR ? &Counters::resp_cqe_flush_error
                                             : &Counters::resp_cqe_error);
  qp_.services.complete(*receive_cq_, completion);
}

// --- receives
// -------------------------------------------------------------------------------------------------------------

bool Responder::take_receive(const Packet& packet) {
  SharedReceiveQueue* srq = qp_.queues.srq;
  receive_pd_ = qp_.init.pd;
  receive_cq_ = qp_.queues.recv_cq;
  if (qp_.init.type == QpType::XRC_RECV) {
    srq = qp_.services.find_xrc_srq(packet.xrc_srqn, qp_.init.xrcd);
    if (srq == nullptr) {
      refuse_request(NakCode::INVALID_REQUEST, {Reason::BAD_SRQ, packet.xrc_srqn, 0, 0});
      return false;
    }
    receive_cq_ = qp_.services.find_cq(srq->cq);
  }
  ReceiveRing& ring = srq == nullptr ? qp_.rq : srq->ring;
  if (ring.empty()) {
    send_rnr_nak(packet);
    return false;
  }
  ring.pop(receive_);
  has_receive_ = true;
  receive_srq_ = srq == nullptr ? 0 : srq->handle;
  if (srq != nullptr) {
    receive_pd_ = srq->pd;
    if (srq->limit_reached()) {
      qp_.services.raise(EventType::SRQ_LIMIT_REACHED, srq->handle);
    }
  }
  return true;
}

bool Responder::current_receive(std::uint64_t& wr_id) const {
  wr_id = receive_.wr_id;
  return has_receive_;
}

void Responder::flush() {
  acknowledge_at_ns_ = kNever;
  in_progress_ = InProgress::NOTHING;
  const AccessFault flushed{Reason::FLUSHED, 0, 0, 0};
  if (has_receive_) {
    fail_receive(WcStatus::WR_FLUSH_ERR, flushed);
  }
  receive_cq_ = qp_.queues.recv_cq;
  // No more than were there to begin with: who feeds the queue may go on for ever.
  const std::uint32_t posted = qp_.queues.srq == nullptr ? qp_.rq.count() : 0;
  for (std::uint32_t at = 0; at < posted && !qp_.rq.empty(); ++at) {
    qp_.rq.pop(receive_);
    fail_receive(WcStatus::WR_FLUSH_ERR, flushed);
  }
}

}  // namespace softhca
