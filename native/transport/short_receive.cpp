// Short messages that come (short_message.cpp has how they leave): those that follow each other to
// one queue pair are taken together, and what none of them changes is looked at once.

#include <algorithm>

#include "memory/plain_access.hpp"
#include "transport/lent_bytes.hpp"
#include "transport/queue_pair.hpp"
#include "wire/psn.hpp"

namespace softhca {
namespace {

bool has_room_for(std::span<const Sge> sges, std::size_t bytes) {
  std::uint64_t room = 0;
  for (const Sge& sge : sges) room += sge.length;
  return bytes <= room;
}

}  // namespace

// Where short messages lie that come one after the other.
struct Responder::ShortPlaces {
  ShortPlaces(const MemoryTable& table, std::uint32_t pd)
      : receives(table, pd, kAccessLocalWrite), writes(table, pd, kAccessRemoteWrite) {}
  PlainAccess receives;
  PlainAccess writes;
};

bool QueuePair::admits_short(const ShortPacket& packet, const Route& from) const {
  const bool receives =
      state() == QpState::RTS || state() == QpState::RTR || state() == QpState::SQD;
  return receives && is_plainly_from_peer(packet.pkey, from);
}

// No other path is known, and nobody else is asked.
bool QueuePair::is_plainly_from_peer(std::uint16_t packet_pkey, const Route& from) const {
  return init.type == QpType::RC && attr.path_mig_state == MigState::MIGRATED &&
         from.source == route.destination && from.destination == route.source &&
         pkeys_match(packet_pkey, pkey);
}

std::size_t QueuePair::receive_short(std::span<const ShortPacket> packets, const Route& from) {
  if (!admits_short(packets.front(), from)) return 0;
  const std::size_t taken = responder.take_short(packets);
  took_short(packets.first(taken));
  return taken;
}

bool QueuePair::receive_lent(const ShortPacket& packet, AddressSpace& from_space,
                             const Route& from) {
  if (!admits_short(packet, from) || !responder.take_lent(packet, from_space)) return false;
  took_short({&packet, 1});
  return true;
}

void QueuePair::took_short(std::span<const ShortPacket> packets) {
  std::size_t bytes = 0;
  std::size_t psns = 0;
  for (const ShortPacket& packet : packets) {
    bytes += packet.wire_bytes();
    psns += packet.psns;
  }
  count(&Counters::rcvd_pkts, psns);
  count(&Counters::rcvd_bytes, bytes);
}

bool Responder::only_acknowledgements_wait() const {
  return replies_.empty() || (replies_.size() == 1 && acknowledges_next());
}

bool Responder::is_between_messages() const {
  return in_progress_ == InProgress::NOTHING && qp_.init.type == QpType::RC &&
         (qp_.state() != QpState::RTR || peer_seen_) && qp_.services.observer == nullptr;
}

bool Responder::takes_short() const {
  return only_acknowledgements_wait() && is_between_messages();
}

// Its length is what it says, in as many packets as that takes, and it may write at all.
[[gnu::always_inline]] inline bool Responder::is_sound(const ShortPacket& packet) const {
  const bool may_write =
      !packet.is_write() || (packet.reth.length == packet.payload.size() &&
                             (qp_.attr.qp_access_flags & kAccessRemoteWrite) != 0);
  const std::uint64_t full = std::uint64_t{packet.psns} * qp_.mtu();
  const bool fits = packet.payload.size() <= full &&
                    (packet.psns == 1 || packet.payload.size() > full - qp_.mtu());
  return may_write && fits;
}

[[gnu::always_inline]] inline bool Responder::is_next_short(const ShortPacket& packet) {
  const bool finds_receive =
      !packet.consumes_receive() || (qp_.queues.srq == nullptr && !has_receive_ && !qp_.rq.empty());
  return packet.psn == expected_psn_ && is_sound(packet) && finds_receive;
}

// Where its bytes go, if that is plain; else null.
[[gnu::always_inline]] inline const std::uint8_t* Responder::place_of(
    const ShortPacket& packet, ShortPlaces& places, std::uint32_t receives_ahead) const {
  const std::size_t bytes = packet.payload.size();
  if (packet.is_write()) {
    return places.writes.at(packet.reth.rkey, packet.reth.virtual_address, bytes);
  }
  const std::span<const Sge> sges = qp_.rq.sges_behind(receives_ahead);
  // The whole entry is checked, as everywhere.
  return sges.size() == 1 && bytes <= sges[0].length ? places.receives.at(sges[0]) : nullptr;
}

// The bytes to where they belong. Should that be refused, the general way refuses it once more.
[[gnu::always_inline]] inline bool Responder::place_short(const ShortPacket& packet,
                                                          ShortPlaces& places) {
  MemoryTable& memory = qp_.services.memory;
  const ByteView payload = packet.payload;
  if (payload.empty()) return true;
  if (const std::uint8_t* to = place_of(packet, places); to != nullptr) {
    return copies_apart(to, payload);
  }
  if (packet.is_write()) {
    return memory
        .write_remote({qp_.init.pd, qp_.qpn}, packet.reth.rkey, packet.reth.virtual_address,
                      payload)
        .ok();
  }
  const std::span<const Sge> sges = qp_.rq.front_sges();
  return has_room_for(sges, payload.size()) && memory.scatter(qp_.init.pd, sges, 0, payload).ok();
}

bool Responder::admit_short(const ShortPacket& packet) {
  if (!takes_short() || !is_next_short(packet)) return false;
  ShortPlaces places(qp_.services.memory, qp_.init.pd);
  return place_short(packet, places);
}

[[gnu::always_inline]] inline Responder::Short Responder::end_short(const ShortPacket& packet) {
  qp_.count(packet.is_write() ? &Counters::rx_write_requests : &Counters::rx_send_requests);
  nak_outstanding_ = false;
  expected_psn_ = psn_add(expected_psn_, packet.psns);
  msn_ = psn_add(msn_, 1);
  message_bytes_ = static_cast<std::uint32_t>(packet.payload.size());
  if (packet.consumes_receive() && !complete_short(packet)) {
    disown_message(packet.psns);
    return Short::DISOWNED;
  }
  if (packet.ack_request) return Short::OWES_ACKNOWLEDGE;
  acknowledge_some_day();
  return Short::TAKEN;
}

Responder::Short Responder::finish_short(const ShortPacket& packet) { return end_short(packet); }

std::size_t Responder::take_short(std::span<const ShortPacket> packets) {
  if (!takes_short()) return 0;
  const ShortPacket& first = packets.front();
  ShortPlaces places(qp_.services.memory, qp_.init.pd);
  std::size_t taken = 0;
  while (taken < packets.size()) {
    const ShortPacket& packet = packets[taken];
    if (packet.destination_qpn != first.destination_qpn || packet.pkey != first.pkey) break;
    if (const std::size_t sends = take_sends(packets.subspan(taken), places.receives); sends > 0) {
      taken += sends;
      if (!only_acknowledgements_wait()) break;
      continue;
    }
    if (!is_next_short(packet) || !place_short(packet, places)) break;
    ++taken;
    const Short how = end_short(packet);
    if (how == Short::TAKEN) continue;
    if (how == Short::OWES_ACKNOWLEDGE) push_acknowledge(packet.psn);
    if (how == Short::DISOWNED || !only_acknowledgements_wait()) break;
  }
  return taken;
}

bool Responder::take_lent(const ShortPacket& packet, AddressSpace& from) {
  if (!takes_short() || !is_next_short(packet)) return false;
  ShortPlaces places(qp_.services.memory, qp_.init.pd);
  const std::uint8_t* const to = place_of(packet, places);
  if (to == nullptr || !fetches_apart(to, from, packet.payload)) return false;
  if (end_short(packet) == Short::OWES_ACKNOWLEDGE) push_acknowledge(packet.last_psn());
  return true;
}

// Nothing but the memory itself can keep it from being taken where this says that it will be: the
// queue of its completion has room too.
std::uint8_t* Responder::place_ahead(const ShortPacket& packet, LookAhead& ahead) const {
  if (ahead.answers != 0 || !takes_short() || packet.payload.empty() ||
      packet.psn != psn_add(expected_psn_, ahead.psns) || !is_sound(packet)) {
    return nullptr;
  }
  if (packet.consumes_receive()) {
    const CompletionQueue& cq = *qp_.queues.recv_cq;
    if (qp_.queues.srq != nullptr || has_receive_ || qp_.rq.at_hand() <= ahead.receives ||
        cq.outlet() != nullptr || cq.overflowed() || cq.count() + ahead.receives >= cq.capacity()) {
      return nullptr;
    }
  }
  ShortPlaces places(qp_.services.memory, qp_.init.pd);
  const std::uint8_t* const to = place_of(packet, places, ahead.receives);
  if (to == nullptr) return nullptr;
  ahead.psns += packet.psns;
  ahead.receives += packet.consumes_receive() ? 1 : 0;
  return const_cast<std::uint8_t*>(to);
}

std::uint8_t* QueuePair::place_ahead(const ShortPacket& packet, const Route& from,
                                     LookAhead& ahead) const {
  return admits_short(packet, from) ? responder.place_ahead(packet, ahead) : nullptr;
}

// False: nobody will ever see the completion.
bool Responder::complete_short(const ShortPacket& packet) {
  Services& services = qp_.services;
  CompletionQueue& cq = *qp_.queues.recv_cq;
  if (Completion* const room = services.begin_quietly(cq); room != nullptr) {
    describe_short(packet, *room);
    services.end_quietly(cq, *room);
    return true;
  }
  Completion completion;
  describe_short(packet, completion);
  services.complete(cq, completion);
  return !cq.overflowed();
}

[[gnu::always_inline]] inline void Responder::describe_short(const ShortPacket& packet,
                                                             Completion& completion) {
  completion = {};
  qp_.rq.pop_front(completion.wr_id, completion.cqe);
  completion.opcode = packet.is_write() ? WcOpcode::RECV_RDMA_WITH_IMM : WcOpcode::RECV;
  completion.byte_len = message_bytes_;
  completion.qpn = qp_.qpn;
  completion.pkey_index = qp_.attr.pkey_index;
  completion.is_receive = true;
  completion.solicited = packet.solicited;
  completion.psn = packet.last_psn();
  if (packet.has_immediate()) {
    completion.wc_flags = kWcWithImm;
    completion.immediate_or_rkey = packet.immediate;
  }
}

bool Responder::acknowledges_at_once(std::uint32_t psn) {
  if (!replies_.empty()) return false;
  acknowledged_psn_ = psn;
  acknowledge_at_ns_ = kNever;
  return true;
}

}  // namespace softhca
