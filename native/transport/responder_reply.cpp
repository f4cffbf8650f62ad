// Duplicates, and the replies of a responder in the order of their PSNs.

#include <algorithm>
#include <iterator>

#include "transport/queue_pair.hpp"
#include "transport/responder.hpp"
#include "transport/summed_payload.hpp"
#include "wire/psn.hpp"
#include "wire/syndrome.hpp"

namespace softhca {

// --- duplicates (IBTA Vol 1, 9.7.5.1.5): nothing is executed twice, except READ
// -----------------------------------------

void Responder::on_duplicate(const Packet& packet) {
  if (packet.info->has(kReadRequest)) {
    on_duplicate_read(packet);
  } else if (packet.info->has(kTakesAtomicResource)) {
    on_duplicate_atomic(packet);
  } else if (packet.info->has(kSend | kWrite)) {
    push_acknowledge(acknowledged_behind(packet.bth.psn));
  }
}

// The last PSN that the answer to a duplicate may acknowledge: the newest, but none of a READ or
// atomic behind the duplicate. Its own answer may be lost, and Linux's rxe takes a plain ACK of its
// last PSN for it.
std::uint32_t Responder::acknowledged_behind(std::uint32_t psn) const {
  std::uint32_t end = expected_psn_;
  for (const Resource& resource : resources_) {
    if (resource.used && psn_distance(psn, resource.first_psn) > 0 &&
        psn_distance(resource.first_psn, end) > 0) {
      end = resource.first_psn;
    }
  }
  return psn_add(end, kPsnMask);
}

// The resource of the request that had this PSN. The newest comes first: PSNs wrap, and an older
// one may have had the same.
bool Responder::find_resource(std::uint32_t psn, bool is_read, std::uint32_t& index) const {
  const auto count = static_cast<std::uint32_t>(resources_.size());
  for (std::uint32_t age = 1; age <= count; ++age) {
    index = (next_resource_ + count - age) % count;
    const Resource& resource = resources_[index];
    const std::int32_t into = psn_distance(resource.first_psn, psn);
    if (resource.used && resource.is_read == is_read && into >= 0 &&
        static_cast<std::uint32_t>(into) < resource.psn_count) {
      return true;
    }
  }
  return false;
}

void Responder::on_duplicate_read(const Packet& packet) {
  std::uint32_t index = 0;
  if (!find_resource(packet.bth.psn, true, index)) {
    return;
  }
  Resource& resource = resources_[index];
  // A repeated READ may start in the middle, but stays inside what was asked for at first.
  const auto first = static_cast<std::uint32_t>(psn_distance(resource.first_psn, packet.bth.psn));
  const std::uint64_t skipped = std::uint64_t{first} * qp_.mtu();
  if (packet.reth.rkey != resource.rkey ||
      packet.reth.virtual_address != resource.address + skipped ||
      packet.reth.length > resource.length - skipped) {
    return;
  }
  auto reply = std::ranges::find_if(replies_, [&](const Reply& waiting) {
    return waiting.kind == ReplyKind::READ && waiting.resource == index;
  });
  if (reply == replies_.end()) {
    reply = replies_.emplace(replies_.end());
    reply->kind = ReplyKind::READ;
    reply->repeats = true;
    reply->resource = index;
    reply->first_packet = reply->next_packet = first;
    resource.replying = true;
  } else if (reply->next_packet > first) {
    // Its answer is half out already: begin that again.
    reply->first_packet = reply->next_packet = first;
  }
  const std::uint32_t packets =
      std::max<std::uint32_t>(1, (packet.reth.length + qp_.mtu() - 1) / qp_.mtu());
  reply->end_packet = std::max(reply->end_packet, first + packets);
  reply->end_bytes = std::max(reply->end_bytes, skipped + packet.reth.length);
  qp_.services.schedule(qp_);
}

void Responder::on_duplicate_atomic(const Packet& packet) {
  std::uint32_t index = 0;
  if (!find_resource(packet.bth.psn, false, index) || resources_[index].replying) {
    return;
  }
  resources_[index].replying = true;
  Reply reply;
  reply.kind = ReplyKind::ATOMIC;
  reply.repeats = true;
  reply.resource = index;
  replies_.push_back(reply);
  qp_.services.schedule(qp_);
}

bool Responder::is_waited_for(std::uint32_t resource) const {
  return std::ranges::any_of(replies_, [=](const Reply& reply) {
    return reply.kind != ReplyKind::ACKNOWLEDGE && reply.resource == resource;
  });
}

// The first answer of a resource still waits: its place cannot be taken yet.
bool Responder::owes_answer(std::uint32_t resource) const {
  return std::ranges::any_of(replies_, [=](const Reply& reply) {
    return reply.kind != ReplyKind::ACKNOWLEDGE && !reply.repeats && reply.resource == resource;
  });
}

void Responder::add_load(QpLoad& load) const {
  load.resources = static_cast<std::uint32_t>(resources_.size());
  load.answering = static_cast<std::uint32_t>(std::ranges::count_if(
      resources_, [](const Resource& resource) { return resource.replying; }));
  load.answers = static_cast<std::uint32_t>(std::ranges::count_if(
      replies_, [](const Reply& reply) { return reply.kind != ReplyKind::ACKNOWLEDGE; }));
}

Responder::Resource* Responder::take_resource(std::uint32_t& index) {
  index = next_resource_;
  next_resource_ = (next_resource_ + 1) % static_cast<std::uint32_t>(resources_.size());
  // A peer that asks anew has the answer that was here: what would repeat it is not needed.
  std::erase_if(replies_, [=](const Reply& reply) {
    return reply.kind != ReplyKind::ACKNOWLEDGE && reply.resource == index;
  });
  Resource& resource = resources_[index];
  resource = {};
  resource.used = resource.replying = true;
  return &resource;
}

// --- replies
// ----------------------------------------------------------------------------------------------------------------

// One that waits at the end of the list says more now.
void Responder::push_acknowledge(std::uint32_t psn) {
  if (replies_.empty() || replies_.back().kind != ReplyKind::ACKNOWLEDGE ||
      replies_.back().syndrome != kSyndromeAck) {
    push_syndrome(psn, kSyndromeAck);
    return;
  }
  Reply& last = replies_.back();
  if (psn_distance(last.psn, psn) > 0) last.psn = psn;
  last.msn = msn_;
  acknowledge_at_ns_ = kNever;
  qp_.services.schedule(qp_);
}

void Responder::push_nak(std::uint32_t psn, std::uint8_t syndrome) { push_syndrome(psn, syndrome); }

// An acknowledgement covers everything before it, so those that wait at the end of the list become
// one: one ACK and one NAK at most, whatever a peer sends. Answers to READs and atomics stay where
// they are, and what comes before them as well.
void Responder::push_syndrome(std::uint32_t psn, std::uint8_t syndrome) {
  const bool is_ack = syndrome == kSyndromeAck;
  auto at = replies_.end();
  while (at != replies_.begin() && std::prev(at)->kind == ReplyKind::ACKNOWLEDGE) {
    --at;
    if ((at->syndrome == kSyndromeAck) == is_ack) {
      psn = is_ack && psn_distance(psn, at->psn) > 0 ? at->psn : psn;
      at = replies_.erase(at);
    }
  }
  Reply reply;
  reply.syndrome = syndrome;
  reply.psn = psn;
  reply.msn = msn_;
  replies_.push_back(reply);
  // It is about all that came, whether it says so itself or makes the peer ask.
  acknowledge_at_ns_ = kNever;
  qp_.services.schedule(qp_);
}

bool Responder::next_packet(Outlet& out) {
  while (!replies_.empty()) {
    switch (replies_.front().kind) {
      case ReplyKind::ACKNOWLEDGE:
        return send_acknowledge(out);
      case ReplyKind::ATOMIC:
        if (send_atomic(out)) {
          return true;
        }
        break;
      case ReplyKind::READ:
        if (send_read(out)) {
          return true;
        }
        break;  // It became a NAK, or nothing.
    }
  }
  return false;
}

bool Responder::may_be_held_back() const {
  return replies_.size() == 1 && acknowledges_next() && replies_.front().syndrome == kSyndromeAck &&
         psn_distance(acknowledged_psn_, replies_.front().psn) < kMostHeldBack;
}

bool Responder::owes_one_packet() const {
  return acknowledges_next() || (!replies_.empty() && replies_.front().kind == ReplyKind::ATOMIC &&
                                 resources_[replies_.front().resource].executed);
}

void Responder::acknowledge_now() {
  if (acknowledge_at_ns_ != kNever) {
    push_acknowledge(psn_add(expected_psn_, kPsnMask));
  }
}

void Responder::silence() {
  qp_.recall_payloads();
  replies_.clear();
  acknowledge_at_ns_ = kNever;
  refused_psn_.reset();
}

void Responder::end_answers() {
  qp_.recall_payloads();
  acknowledge_now();
  const auto reads = std::ranges::find_if(replies_, [this](const Reply& reply) {
    return reply.kind == ReplyKind::READ ||
           (reply.kind == ReplyKind::ATOMIC && !resources_[reply.resource].executed);
  });
  replies_.erase(reads, replies_.end());
}

void Responder::send_bare(Packet& packet, Outlet& out) {
  if (out.local != nullptr) {
    out.local->pieces.clear();
    qp_.seal_local(packet, 1, {}, out);
  } else {
    qp_.seal(packet, encode_headers(packet, out.buffer), 0, out);
  }
}

bool Responder::send_acknowledge(Outlet& out) {
  const Reply reply = replies_.front();
  replies_.pop_front();
  acknowledged_psn_ = reply.psn;
  if (syndrome_kind(reply.syndrome) == SyndromeKind::RNR_NAK) {
    qp_.count(&Counters::send_rnr_err);
  }
  Packet packet = qp_.header(Operation::ACKNOWLEDGE, reply.psn);
  packet.aeth = {reply.syndrome, reply.msn};
  send_bare(packet, out);
  return true;
}

void Responder::on_unreadable(std::uint32_t psn) {
  AccessFault fault{Reason::MEMORY_GONE, 0, 0, 0};
  if (std::uint32_t index = 0; find_resource(psn, true, index)) {
    fault.key = resources_[index].rkey;
  }
  // The rest of this answer would be refused in its turn, and with it what then waits behind it:
  // the refusal of what is missing first, which the peer waits for.
  std::erase_if(replies_, [=, this](const Reply& reply) {
    return psn_distance(psn, next_psn_of(reply)) > 0;
  });
  refuse_late(replies_.end(), psn, fault);
}

std::uint32_t Responder::next_psn_of(const Reply& reply) const {
  if (reply.kind == ReplyKind::ACKNOWLEDGE) {
    return reply.psn;
  }
  return psn_add(resources_[reply.resource].first_psn, reply.next_packet);
}

// The queue pair of a program that was killed outlives its memory for a moment. Its peer hears
// nothing from it, as from a host that crashed.
void Responder::push_refusal(std::uint32_t psn, NakCode code, const AccessFault& fault) {
  if (!qp_.services.memory.owner_is_gone(fault)) {
    refused_psn_ = psn;
    push_nak(psn, kSyndromeNak | static_cast<std::uint8_t>(code));
    replies_.back().msn = completed_before(psn);
  }
}

// The MSN of what is refused. A READ or an atomic counts as completed before it is answered, and so
// does what came behind it; whose answer does not come was none (IBTA Vol 1, 9.7.7.1).
std::uint32_t Responder::completed_before(std::uint32_t psn) const {
  std::uint32_t index = 0;
  const bool was_counted =
      psn != expected_psn_ && (find_resource(psn, true, index) || find_resource(psn, false, index));
  return was_counted ? psn_add(resources_[index].msn, kPsnMask) : msn_;
}

// The region was good when the request came, and is no longer. What is owed for earlier requests is
// still sent.
void Responder::refuse_late(std::deque<Reply>::iterator reply, std::uint32_t psn,
                            const AccessFault& fault) {
  replies_.erase(reply, replies_.end());
  if (qp_.state() != QpState::ERR) {
    qp_.count(&Counters::resp_remote_access_errors);
    push_refusal(psn, NakCode::REMOTE_ACCESS_ERROR, fault);
    qp_.services.raise(EventType::QP_ACCESS_ERR, qp_.qpn);
    qp_.enter_error();
  } else if (refused_psn_ && psn_distance(psn, *refused_psn_) > 0) {
    // A request behind this one was refused first. The peer takes no note of that while an earlier
    // answer is missing, and nobody answers any more when it asks for that again.
    push_refusal(psn, NakCode::REMOTE_ACCESS_ERROR, fault);
  }
}

bool Responder::send_atomic(Outlet& out) {
  Resource& resource = resources_[replies_.front().resource];
  const AccessFault fault = resource.executed ? AccessFault{} : run_atomic(resource);
  if (!fault.ok()) {
    refuse_late(replies_.begin(), resource.first_psn, fault);
    return false;
  }
  replies_.pop_front();
  resource.replying = false;
  const bool confirms = !opcode_info(resource.opcode).has(kAtomicRequest);
  Packet packet =
      qp_.header(confirms ? Operation::RDMA_READ_RESPONSE_ONLY : Operation::ATOMIC_ACKNOWLEDGE,
                 resource.first_psn);
  packet.aeth = {kSyndromeAck, resource.msn};
  packet.atomic_original = resource.original;
  send_bare(packet, out);
  return true;
}

// The next `packets` packets of an answer, as one.
Packet Responder::read_response(const Reply& reply, std::uint32_t packets) const {
  const Resource& resource = resources_[reply.resource];
  const bool first = reply.next_packet == reply.first_packet;
  const bool last = reply.next_packet + packets == reply.end_packet;
  const Operation operation =
      first ? (last ? Operation::RDMA_READ_RESPONSE_ONLY : Operation::RDMA_READ_RESPONSE_FIRST)
            : (last ? Operation::RDMA_READ_RESPONSE_LAST : Operation::RDMA_READ_RESPONSE_MIDDLE);
  Packet packet = qp_.header(operation, psn_add(resource.first_psn, reply.next_packet));
  packet.aeth = {kSyndromeAck, resource.msn};
  return packet;
}

// Puts the next packet of an answer into the outlet, or as many as may leave as one. Rights are
// checked again for every packet: the region may have been deregistered since the request.
AccessFault Responder::fill_read(const Reply& reply, std::uint32_t& packets, Outlet& out) {
  MemoryTable& memory = qp_.services.memory;
  const Resource& resource = resources_[reply.resource];
  const std::uint64_t offset = std::uint64_t{reply.next_packet} * qp_.mtu();
  const std::uint64_t address = resource.address + offset;
  const auto bytes_of = [&](std::uint32_t count) {
    return static_cast<std::size_t>(
        std::min(std::uint64_t{count} * qp_.mtu(), reply.end_bytes - offset));
  };
  packets = std::min(out.most_packets(qp_.mtu()), reply.end_packet - reply.next_packet);
  if (out.local != nullptr) out.local->pieces.clear();
  const bool overtaken = is_overtaken(reply);
  // Nobody may wait for what is repeated: it is not lent, so that the region may go.
  const bool lends = out.local != nullptr && !qp_.copies_payload && !reply.repeats && !overtaken;
  if (lends && bytes_of(packets) > kLocalCopiedBytes) {
    bool listed = false;
    const AccessFault fault = memory.list_remote(resource.who, resource.rkey, address,
                                                 bytes_of(packets), out.local->pieces, listed);
    if (!fault.ok()) {
      return fault;
    }
    if (listed && qp_.local->can_fetch(out.local->pieces)) {
      qp_.seal_local(read_response(reply, packets), packets, {}, out);
      return {};
    }
    out.local->pieces.clear();
  }
  packets = std::min(packets, out.most_brought(qp_.mtu()));
  const std::size_t payload_bytes = bytes_of(packets);
  Packet packet = read_response(reply, packets);
  std::size_t header_bytes = 0;
  if (out.local == nullptr) {
    packet.bth.pad_count = static_cast<std::uint8_t>(-payload_bytes & 3);
    header_bytes = encode_headers(packet, out.buffer);
  }
  if (out.local == nullptr && !overtaken && may_sum(payload_bytes)) {
    const std::uint8_t* from =
        memory.plain(resource.who.pd, resource.rkey, address, payload_bytes, kAccessRemoteRead);
    if (from != nullptr &&
        qp_.fetch_and_seal(header_bytes, payload_bytes, packet.bth.pad_count, from, out)) {
      return {};
    }
  }
  const ByteSpan payload = out.buffer.subspan(header_bytes, payload_bytes);
  // The atomic before it may have changed what the answer before that one has seen.
  if (reply.next_packet == reply.first_packet) {
    memory.read_ahead.forget();
  }
  if (payload_bytes != 0) {
    const AccessFault fault = memory.read_remote(resource.who, resource.rkey, address, payload,
                                                 reply.end_bytes - offset - payload_bytes);
    if (!fault.ok()) {
      return fault;
    }
    if (overtaken) {
      hide_atomics(reply, address, payload);
    }
  }
  if (out.local == nullptr) {
    qp_.seal(packet, header_bytes, payload_bytes, out);
  } else {
    qp_.seal_local(packet, packets, payload, out);
  }
  return {};
}

bool Responder::send_read(Outlet& out) {
  Reply& reply = replies_.front();
  Resource& resource = resources_[reply.resource];
  std::uint32_t packets = 0;
  const AccessFault fault = fill_read(reply, packets, out);
  if (!fault.ok() && reply.repeats) {
    // The whole answer went out once, so the region may rightly be gone: whoever has the answer
    // must not lose the connection to a repeat that nobody waits for.
    resource.replying = false;
    replies_.pop_front();
    return false;
  }
  if (!fault.ok()) {
    refuse_late(replies_.begin(), psn_add(resource.first_psn, reply.next_packet), fault);
    return false;
  }
  reply.next_packet += packets;
  if (reply.next_packet == reply.end_packet) {
    resource.replying = false;
    replies_.pop_front();
  }
  return true;
}

}  // namespace softhca
