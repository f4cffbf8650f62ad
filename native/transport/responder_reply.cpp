// Duplicates, and the replies of a responder in the order of their PSNs.

#include <algorithm>

#include "transport/queue_pair.hpp"
#include "transport/responder.hpp"
#include "wire/psn.hpp"

namespace softhca {

// --- duplicates (IBTA Vol 1, 9.7.5.1.5): nothing is executed twice, except READ
// -----------------------------------------

void Responder::on_duplicate(const Packet& packet) {
  if (packet.info->has(kReadRequest)) {
    on_duplicate_read(packet);
  } else if (packet.info->has(kAtomicRequest)) {
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

void Responder::on_duplicate_read(const Packet& packet) {
  for (std::uint32_t index = 0; index < resources_.size(); ++index) {
    Resource& resource = resources_[index];
    const std::int32_t into = psn_distance(resource.first_psn, packet.bth.psn);
    if (!resource.used || !resource.is_read || into < 0 ||
        static_cast<std::uint32_t>(into) >= resource.psn_count) {
      continue;
    }
    // A repeated READ may start in the middle, but stays inside what was asked for at first.
    const std::uint64_t skipped = static_cast<std::uint64_t>(into) * qp_.mtu();
    if (packet.reth.rkey != resource.rkey ||
        packet.reth.virtual_address != resource.address + skipped ||
        packet.reth.length > resource.length - skipped) {
      return;
    }
    const std::uint32_t packets =
        std::max<std::uint32_t>(1, (packet.reth.length + qp_.mtu() - 1) / qp_.mtu());
    const auto first = static_cast<std::uint32_t>(into);
    const auto waiting = std::ranges::find_if(replies_, [&](const Reply& reply) {
      return reply.kind == ReplyKind::READ && reply.resource == index;
    });
    if (waiting == replies_.end()) {
      Reply reply;
      reply.kind = ReplyKind::READ;
      reply.repeats = true;
      reply.resource = index;
      replies_.push_back(reply);
      resource.replying = true;
      Reply& added = replies_.back();
      added.first_packet = added.next_packet = first;
      added.end_packet = first + packets;
    } else if (waiting->next_packet > first) {
      // Its answer is half out already: begin that again.
      waiting->first_packet = waiting->next_packet = first;
      waiting->end_packet = std::max(waiting->end_packet, first + packets);
    }
    qp_.services.schedule(qp_);
    return;
  }
}

void Responder::on_duplicate_atomic(const Packet& packet) {
  for (std::uint32_t index = 0; index < resources_.size(); ++index) {
    Resource& resource = resources_[index];
    if (!resource.used || resource.is_read || resource.first_psn != packet.bth.psn) {
      continue;
    }
    if (!resource.replying) {
      resource.replying = true;
      Reply reply;
      reply.kind = ReplyKind::ATOMIC;
      reply.repeats = true;
      reply.resource = index;
      replies_.push_back(reply);
      qp_.services.schedule(qp_);
    }
    return;
  }
}

// The first answer of a resource still waits: its place cannot be taken yet.
bool Responder::owes_answer(std::uint32_t resource) const {
  return std::ranges::any_of(replies_, [=](const Reply& reply) {
    return reply.kind != ReplyKind::ACKNOWLEDGE && !reply.repeats && reply.resource == resource;
  });
}

bool Responder::owes_read() const {
  return std::ranges::any_of(
      replies_, [](const Reply& reply) { return reply.kind == ReplyKind::READ && !reply.repeats; });
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

// An acknowledgement covers everything before it, so one that still waits is replaced.
void Responder::push_acknowledge(std::uint32_t psn) {
  if (replies_.empty() || replies_.back().kind != ReplyKind::ACKNOWLEDGE ||
      replies_.back().syndrome != kSyndromeAck) {
    replies_.emplace_back();
  }
  replies_.back().psn = psn;
  replies_.back().msn = msn_;
  qp_.services.schedule(qp_);
}

void Responder::push_nak(std::uint32_t psn, std::uint8_t syndrome) {
  Reply reply;
  reply.syndrome = syndrome;
  reply.psn = psn;
  reply.msn = msn_;
  replies_.push_back(reply);
  qp_.services.schedule(qp_);
}

bool Responder::next_packet(ByteSpan buffer, OutgoingPacket& out) {
  while (!replies_.empty()) {
    switch (replies_.front().kind) {
      case ReplyKind::ACKNOWLEDGE:
        return send_acknowledge(buffer, out);
      case ReplyKind::ATOMIC:
        if (send_atomic(buffer, out)) {
          return true;
        }
        break;
      case ReplyKind::READ:
        if (send_read(buffer, out)) {
          return true;
        }
        break;  // It became a NAK, or nothing.
    }
  }
  return false;
}

bool Responder::send_acknowledge(ByteSpan buffer, OutgoingPacket& out) {
  const Reply reply = replies_.front();
  replies_.pop_front();
  Packet packet = qp_.header(Operation::ACKNOWLEDGE, reply.psn);
  packet.aeth = {reply.syndrome, reply.msn};
  qp_.seal(packet, encode_headers(packet, buffer), 0, buffer, out);
  return true;
}

// The region was good when the request came, and is no longer.
void Responder::refuse_late(Resource& resource, std::uint32_t psn) {
  replies_.clear();
  resource.replying = false;
  if (qp_.state() != QpState::ERR) {
    qp_.count(&Counters::resp_remote_access_errors);
    push_nak(psn, kSyndromeNak | static_cast<std::uint8_t>(NakCode::REMOTE_ACCESS_ERROR));
    qp_.services.raise(EventType::QP_ACCESS_ERR, qp_.qpn);
    qp_.enter_error();
  }
}

bool Responder::send_atomic(ByteSpan buffer, OutgoingPacket& out) {
  Resource& resource = resources_[replies_.front().resource];
  if (!resource.executed && !run_atomic(resource).ok()) {
    refuse_late(resource, resource.first_psn);
    return false;
  }
  replies_.pop_front();
  resource.replying = false;
  Packet packet = qp_.header(Operation::ATOMIC_ACKNOWLEDGE, resource.first_psn);
  packet.aeth = {kSyndromeAck, resource.msn};
  packet.atomic_original = resource.original;
  qp_.seal(packet, encode_headers(packet, buffer), 0, buffer, out);
  return true;
}

bool Responder::send_read(ByteSpan buffer, OutgoingPacket& out) {
  Reply& reply = replies_.front();
  Resource& resource = resources_[reply.resource];
  const bool first = reply.next_packet == reply.first_packet;
  const bool last = reply.next_packet + 1 == reply.end_packet;
  const std::uint64_t offset = std::uint64_t{reply.next_packet} * qp_.mtu();
  const auto payload_bytes =
      static_cast<std::size_t>(std::min<std::uint64_t>(qp_.mtu(), resource.length - offset));
  const Operation operation =
      first ? (last ? Operation::RDMA_READ_RESPONSE_ONLY : Operation::RDMA_READ_RESPONSE_FIRST)
            : (last ? Operation::RDMA_READ_RESPONSE_LAST : Operation::RDMA_READ_RESPONSE_MIDDLE);
  Packet packet = qp_.header(operation, psn_add(resource.first_psn, reply.next_packet));
  packet.aeth = {kSyndromeAck, resource.msn};
  packet.bth.pad_count = static_cast<std::uint8_t>(-payload_bytes & 3);
  const std::size_t header_bytes = encode_headers(packet, buffer);
  if (payload_bytes != 0) {
    // Checked again for every packet: the region may have been deregistered since the request.
    const AccessFault fault =
        qp_.services.memory.read_remote(resource.pd, resource.rkey, resource.address + offset,
                                        buffer.subspan(header_bytes, payload_bytes));
    if (!fault.ok() && reply.repeats) {
      // The whole answer went out once, so the region may rightly be gone: whoever has the answer
      // must not lose the connection to a repeat that nobody waits for.
      resource.replying = false;
      replies_.pop_front();
      return false;
    }
    if (!fault.ok()) {
      refuse_late(resource, packet.bth.psn);
      return false;
    }
  }
  qp_.seal(packet, header_bytes, payload_bytes, buffer, out);
  if (last) {
    resource.replying = false;
    replies_.pop_front();
  } else {
    ++reply.next_packet;
  }
  return true;
}

}  // namespace softhca
