// The checks that a request passes, each by name and in this order (IBTA Vol 1, 9.7.4.1).

#include "transport/queue_pair.hpp"
#include "transport/responder.hpp"
#include "wire/psn.hpp"

namespace softhca {
namespace {

std::uint32_t required_access(const Packet& packet) {
  if (packet.info->has(kWrite | kAtomicWrite)) {
    return kAccessRemoteWrite;
  }
  if (packet.info->has(kReadRequest)) {
    return kAccessRemoteRead;
  }
  return packet.info->has(kAtomicRequest) ? std::uint32_t{kAccessRemoteAtomic} : 0;
}

std::uint32_t flush_access(const Packet& packet) {
  return ((packet.feth.placement_type & 1) != 0 ? kAccessFlushGlobal : 0u) |
         ((packet.feth.placement_type & 2) != 0 ? kAccessFlushPersistent : 0u);
}

}  // namespace

void Responder::on_reliable(const Packet& packet) {
  ShortPacket brief;
  if (short_form(packet, brief) && take_short({&brief, 1}) == 1) return;
  if (qp_.state() == QpState::RTR && !peer_seen_) {
    peer_seen_ = true;
    qp_.services.raise(EventType::COMM_EST, qp_.qpn);
  }
  using Check = Step (Responder::*)(const Packet&);
  static constexpr Check kChecks[] = {
      &Responder::check_psn,       &Responder::check_sequence, &Responder::check_operation,
      &Responder::check_resources, &Responder::check_length,   &Responder::check_access,
      &Responder::check_receive,   &Responder::execute,
  };
  for (const Check check : kChecks) {
    if ((this->*check)(packet) == Step::STOP) {
      return;
    }
  }
  finish_packet(packet);
}

Responder::Step Responder::check_psn(const Packet& packet) {
  const std::int32_t ahead = psn_distance(expected_psn_, packet.bth.psn);
  if (ahead == 0) {
    nak_outstanding_ = false;
    return Step::CONTINUE;
  }
  if (ahead < 0) {
    qp_.count(&Counters::duplicate_request);
    on_duplicate(packet);
    return Step::STOP;
  }
  qp_.count(&Counters::out_of_sequence);
  // One NAK per gap: what follows is dropped in silence until the expected packet comes.
  if (!nak_outstanding_) {
    nak_outstanding_ = true;
    push_nak(expected_psn_, kSyndromeNak | static_cast<std::uint8_t>(NakCode::PSN_SEQUENCE_ERROR));
  }
  return Step::STOP;
}

Responder::Step Responder::check_sequence(const Packet& packet) {
  const OpcodeInfo& info = *packet.info;
  const bool continues = info.has(kMiddle | kLast);
  const bool fits = (in_progress_ == InProgress::NOTHING && !continues) ||
                    (in_progress_ == InProgress::SEND && continues && info.has(kSend)) ||
                    (in_progress_ == InProgress::WRITE && continues && info.has(kWrite));
  if (fits) {
    return Step::CONTINUE;
  }
  return refuse_request(NakCode::INVALID_REQUEST, {Reason::BAD_SEQUENCE, 0, 0, 0});
}

Responder::Step Responder::check_operation(const Packet& packet) {
  if (!packet.info->has(kKnown)) {
    return refuse_request(NakCode::INVALID_REQUEST, {Reason::UNSUPPORTED, 0, 0, 0});
  }
  if (!packet.info->has(kMiddle | kLast)) {
    who_ = {qp_.init.pd, qp_.qpn};
    if (qp_.init.type == QpType::XRC_RECV) {
      const SharedReceiveQueue* srq = qp_.services.find_xrc_srq(packet.xrc_srqn, qp_.init.xrcd);
      if (srq == nullptr) {
        return refuse_request(NakCode::INVALID_REQUEST, {Reason::BAD_SRQ, packet.xrc_srqn, 0, 0});
      }
      who_.pd = srq->pd;
      srqn_ = packet.xrc_srqn;
    }
  } else if (qp_.init.type == QpType::XRC_RECV && packet.xrc_srqn != srqn_) {
    // It would bring one queue's owner news of what was allowed to be written by another one's.
    return refuse_request(NakCode::INVALID_REQUEST, {Reason::BAD_SRQ, packet.xrc_srqn, 0, 0});
  }
  if (packet.info->has(kFlush)) {
    const bool known = packet.feth.placement_type >= 1 && packet.feth.placement_type <= 3 &&
                       packet.feth.selectivity <= 1;
    if (!known) {
      return refuse_request(NakCode::INVALID_REQUEST, {Reason::UNSUPPORTED, 0, 0, 0});
    }
    const std::uint32_t flushes = flush_access(packet);
    if ((qp_.attr.qp_access_flags & flushes) != flushes) {
      return refuse_request(NakCode::REMOTE_ACCESS_ERROR,
                            {Reason::QP_MISSING_RIGHT, packet.reth.rkey, 0, 0});
    }
  }
  const std::uint32_t access = required_access(packet);
  if ((qp_.attr.qp_access_flags & access) == access) {
    return Step::CONTINUE;
  }
  return refuse_request(NakCode::INVALID_REQUEST,
                        {Reason::QP_MISSING_RIGHT, packet.reth.rkey, 0, 0});
}

// Who asks for more READs and atomics than was agreed on hears that, whatever the key.
Responder::Step Responder::check_resources(const Packet& packet) {
  if (!packet.info->has(kReadRequest | kTakesAtomicResource)) {
    return Step::CONTINUE;
  }
  if (!resources_.empty() && !owes_answer(next_resource_)) {
    return Step::CONTINUE;
  }
  return refuse_request(NakCode::INVALID_REQUEST, {Reason::TOO_MANY_READS, 0, 0, 0});
}

Responder::Step Responder::check_length(const Packet& packet) {
  const OpcodeInfo& info = *packet.info;
  const std::uint64_t payload = packet.payload_bytes();
  bool good = true;
  if (info.has(kSend | kWrite)) {
    const std::uint64_t full = std::uint64_t{packet.psns} * qp_.mtu();
    if (info.has(kFirst | kMiddle)) {
      good = payload == full;
    } else {
      // Only a message without bytes ends with an empty packet.
      const bool may_be_empty = info.has(kOnly) && packet.psns == 1;
      good = payload <= full && (may_be_empty || payload > full - qp_.mtu());
    }
  }
  if (info.has(kWrite)) {
    const std::uint64_t left = info.has(kHasReth) ? packet.reth.length : write_left_;
    good = good && (info.has(kLast | kOnly) ? payload == left : payload < left);
  }
  if (info.has(kAtomicWrite)) {
    good = payload == 8 && packet.reth.length == 8;
  }
  // A FLUSH of a whole region has no range: what its RETH says of one is not looked at (Annex A19).
  const bool has_range = !info.has(kFlush) || packet.feth.selectivity == 0;
  if (info.has(kHasReth) && has_range) {
    good = good && packet.reth.length <= kMaxMessageBytes;
  }
  if (good) {
    return Step::CONTINUE;
  }
  return refuse_request(NakCode::INVALID_REQUEST, {Reason::BAD_LENGTH, 0, 0, payload});
}

Responder::Step Responder::check_access(const Packet& packet) {
  const OpcodeInfo& info = *packet.info;
  AccessFault fault;
  if (info.has(kAtomicRequest | kAtomicWrite)) {
    // Alignment comes before the key (IBTA Vol 1, 9.4.5.1).
    const bool writes = info.has(kAtomicWrite);
    const std::uint64_t at = writes ? packet.reth.virtual_address : packet.atomic.virtual_address;
    const std::uint32_t rkey = writes ? packet.reth.rkey : packet.atomic.rkey;
    if ((at & 7) != 0) {
      return refuse_request(NakCode::INVALID_REQUEST, {Reason::MISALIGNED, rkey, at, 8});
    }
    fault = qp_.services.memory.check_remote(who_, rkey, at, 8, required_access(packet));
  } else if (info.has(kFlush)) {
    fault = qp_.services.memory.check_flush(who_, packet.reth.rkey, packet.reth.virtual_address,
                                            packet.reth.length, packet.feth.selectivity == 1,
                                            flush_access(packet));
  } else if (info.has(kHasReth) && packet.reth.length != 0) {
    // Neither key nor address is looked at for zero bytes (IBTA Vol 1, C9-88).
    fault = qp_.services.memory.check_remote(who_, packet.reth.rkey, packet.reth.virtual_address,
                                             packet.reth.length, required_access(packet));
  }
  if (fault.ok()) {
    return Step::CONTINUE;
  }
  qp_.count(&Counters::resp_remote_access_errors);
  return refuse_request(NakCode::REMOTE_ACCESS_ERROR, fault);
}

Responder::Step Responder::check_receive(const Packet& packet) {
  const OpcodeInfo& info = *packet.info;
  const bool consumes =
      (info.has(kSend) && info.has(kFirst | kOnly)) || (info.has(kWrite) && info.has(kHasImmDt));
  const bool ready = !consumes || has_receive_ || take_receive(packet);
  return ready ? Step::CONTINUE : Step::STOP;
}

}  // namespace softhca
