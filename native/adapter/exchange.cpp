// Packets between adapters that share memory: handed over as values, with the payload where the
// sender has it. Nothing is encoded, summed or queued for a link.

#include <algorithm>
#include <vector>

#include "adapter/state.hpp"

namespace softhca {
namespace {

// What one call moves at most; the rest is for whoever has the time.
constexpr int kExchangePackets = 256;
constexpr std::uint64_t kExchangeBytes = 256 * 1024;
// A path that takes nothing for so long, and no longer than twice that, leads to somebody who was
// stopped. A busy machine keeps nobody from running for seconds.
constexpr std::uint64_t kStillNs = 2'000'000'000;

}  // namespace

LocalPath* Adapter::State::path_of(const Route& route) {
  if (!config.shortcut || observer != nullptr) {
    return nullptr;
  }
  if (std::ranges::find(config.gids, route.destination) != config.gids.end()) {
    return &self;
  }
  return paths == nullptr ? nullptr : paths->path_to(route.source, route.destination);
}

void Adapter::set_paths(LocalPaths* paths) {
  state_->paths = paths;
  state_->memory_table.revoking = [this, paths](std::uint32_t index) {
    // Who looks after the driver's work has what was taken back fetched, and nobody waits for it.
    if (paths != nullptr && paths->revoke(index)) state_->untold = true;
  };
}

void Adapter::State::recall_payloads(std::uint32_t qpn, LentPayloads which) {
  if (paths != nullptr) paths->recall(qpn, which);
}

void Adapter::forget_path(const LocalPath& path) {
  state_->qps.for_each([&](QueuePair& qp) {
    if (qp.local == &path) state_->leave_path(qp);
  });
}

// Nobody would ever repeat what waits for room, or complete it: to a host that has stopped, packets
// leave and are lost.
void Adapter::State::ask_stalled_paths() {
  std::vector<LocalPath*> asked;
  for (const std::uint32_t qpn : stalled) {
    const QueuePair* const qp = qps.find(qpn);
    if (qp == nullptr || qp->local == nullptr || std::ranges::count(asked, qp->local) != 0) {
      continue;
    }
    asked.push_back(qp->local);
    qp->local->give_up_if_still();
  }
  stalled_until_ns = time.now_ns() + kStillNs;
}

// From now on its packets take the network.
void Adapter::State::leave_path(QueuePair& qp) {
  qp.local = nullptr;
  qp.requester.configure();
  schedule(qp);
  timers.update(qp);  // Over the network a probe comes before the time-out.
}

bool Adapter::State::deliver_locally(const Packet& packet, const Route& route) {
  QueuePair* const qp = qps.find(packet.bth.destination_qpn);
  if (qp == nullptr) {
    ++counters.rx_unknown_qp;
    return true;
  }
  arrived_at.fetch(*qp);
  const char* verdict = "";
  qp->receive(packet, route, wire_bytes(packet), verdict);
  timers.update(*qp);
  return !std::exchange(qp->payload_unreadable, false);
}

void Adapter::State::SelfPath::send(const LocalPacket& packet) {
  if (!adapter.deliver_locally(packet.packet, packet.route)) {
    adapter.qps.find(packet.qpn)->on_unreadable(lent_payload_of(packet.qpn, packet.packet));
  }
}

// A short message overtakes nobody: it leaves at once only where nothing else is to leave.
bool Adapter::State::may_leave_at_once(const QueuePair& qp) const {
  return qp.listed == QueuePair::Listed::NOWHERE && ready_local.empty() && stalled.empty() &&
         port_active && observer == nullptr;
}

bool Adapter::State::send_at_once(QueuePair& qp) {
  if (!may_leave_at_once(qp) || !qp.requester.may_send_short()) return false;
  ShortPacket packet;
  if (!qp.requester.make_short(packet, leaving_bytes)) return false;
  if (qp.local == &self) {
    if (!send_to_self(qp, packet)) return false;
  } else {
    if (qp.local->send_short({&packet, 1}) == 0) return false;
    qp.requester.sent_short(packet);
    qp.requester.await_acknowledgement();
    qp.took_turn(false);
  }
  timers.update(qp);
  return true;
}

// Those of a list that may leave at once, to another adapter of this host: how many of the first.
std::size_t Adapter::State::post_short(QueuePair& qp, std::span<const SendWr* const> wrs,
                                       std::span<const std::uint64_t> cqes) {
  if (qp.local == nullptr || qp.local == &self || !may_leave_at_once(qp)) return 0;
  const std::size_t posted = qp.requester.post_short(wrs, cqes);
  if (posted > 0) timers.update(qp);
  return posted;
}

// To a queue pair of this adapter, which takes it before anybody says that it has left.
bool Adapter::State::send_to_self(QueuePair& qp, const ShortPacket& packet) {
  QueuePair* const peer = qps.find(packet.destination_qpn);
  if (peer == nullptr || !peer->admits_short(packet, qp.route) ||
      !peer->responder.admit_short(packet)) {
    return false;
  }
  qp.requester.sent_short(packet);
  qp.took_turn(false);
  peer->took_short({&packet, 1});
  const bool owes = peer->responder.finish_short(packet) == Responder::Short::OWES_ACKNOWLEDGE;
  if (!owes || !acknowledge_at_once(*peer, qp, packet.psn)) {
    if (owes) peer->responder.push_acknowledge(packet.psn);
    qp.requester.await_acknowledgement();
  }
  timers.update(*peer);
  return true;
}

// What an acknowledgement from `peer` to `qp` would do, without one. False: it would do something
// else.
bool Adapter::State::acknowledge_at_once(QueuePair& peer, QueuePair& qp, std::uint32_t psn) {
  const bool would_arrive = peer.local == &self && peer.listed == QueuePair::Listed::NOWHERE &&
                            peer.attr.dest_qp_num == qp.qpn && qp.state() == QpState::RTS &&
                            qp.attr.path_mig_state == MigState::MIGRATED &&
                            qp.route.destination == peer.route.source &&
                            pkeys_match(peer.pkey, qp.pkey);
  if (!would_arrive || !peer.responder.acknowledges_at_once(psn)) return false;
  constexpr std::size_t kAcknowledgeBytes = kBthBytes + 4 + kIcrcBytes;
  peer.took_turn(true);
  peer.count(&Counters::sent_pkts);
  peer.count(&Counters::sent_bytes, kAcknowledgeBytes);
  qp.count(&Counters::rcvd_pkts);
  qp.count(&Counters::rcvd_bytes, kAcknowledgeBytes);
  qp.requester.on_plain_acknowledge(psn);
  return true;
}

// Where one is all that there is to be sent to another adapter. False: it is not so simple.
bool Adapter::State::send_acknowledge(QueuePair& qp) {
  PlainAcknowledge packet;
  if (qp.local == &self || observer != nullptr || !port_active || !qp.next_is_acknowledge(packet) ||
      !qp.local->send_acknowledge(packet)) {
    return false;
  }
  qp.sent_acknowledge();
  return true;
}

// The same of the whole answer to a READ.
bool Adapter::State::send_answer(QueuePair& qp) {
  WholeAnswer packet;
  std::uint32_t rkey = 0;
  if (qp.local == &self || observer != nullptr || !port_active ||
      !qp.next_is_answer(packet, rkey) || !qp.local->send_answer(packet, qp.qpn, rkey)) {
    return false;
  }
  qp.sent_answer(packet);
  return true;
}

// One packet of a queue pair. False: it has none.
bool Adapter::State::send_locally(QueuePair& qp) {
  Outlet outlet{.buffer = leaving_bytes, .local = &leaving};
  if (!qp.next_packet(outlet)) {
    return false;
  }
  if (port_active) {
    qp.local->send(leaving);
  } else {
    ++counters.port_down_drops;
  }
  qp.handed_over();
  return true;
}

bool Adapter::exchange(std::uint64_t now_ns) {
  const State& s = *state_;
  return !(s.ready_local.empty() && s.stalled.empty()) && exchange_some(now_ns);
}

bool Adapter::exchange_some(std::uint64_t now_ns) {
  State& s = *state_;
  s.set_time(now_ns);
  if (!s.stalled.empty()) {
    s.ready_local.insert(s.ready_local.end(), s.stalled.begin(), s.stalled.end());
    s.stalled.clear();
  }
  int packets = kExchangePackets;
  std::uint64_t bytes = 0;
  while (!s.ready_local.empty() && packets > 0 && bytes < kExchangeBytes) {
    QueuePair* qp = s.qps.find(s.ready_local.front());
    s.ready_local.pop_front();
    if (qp == nullptr || qp->listed != QueuePair::Listed::FOR_PATH) {
      continue;
    }
    if (qp->local != nullptr && !qp->local->has_room()) {
      s.stalled.push_back(qp->qpn);
      continue;
    }
    qp->listed = QueuePair::Listed::NOWHERE;
    if (qp->local == nullptr) {
      s.schedule(*qp);  // It has become one for the wire.
    } else if (s.send_acknowledge(*qp)) {
      --packets;
    } else if (s.send_answer(*qp)) {
      --packets;
      if (qp->may_have_packets()) s.schedule(*qp);
    } else if (s.send_locally(*qp)) {
      --packets;
      // A neighbour fetches them itself.
      if (qp->local == &s.self) bytes += s.leaving.packet.pieces_bytes;
      if (qp->may_have_packets()) {
        s.schedule(*qp);
      }
    }
    s.timers.update(*qp);
  }
  if (s.stalled.empty()) {
    s.stalled_until_ns = kNever;
  } else if (s.stalled_until_ns == kNever) {
    s.stalled_until_ns = s.time.now_ns() + kStillNs;
  }
  s.settle_overflows();
  return !s.ready_local.empty();
}

bool Adapter::receive_local(const Route& route, const Packet& packet, std::uint64_t now_ns) {
  State& s = *state_;
  s.set_time(now_ns);
  if (!s.port_active) {
    ++s.counters.port_down_drops;
    return true;
  }
  const bool readable = s.deliver_locally(packet, route);
  s.settle_overflows();
  return readable;
}

std::size_t Adapter::receive_short(const Route& route, std::span<const ShortPacket> packets,
                                   std::uint64_t now_ns) {
  State& s = *state_;
  std::size_t taken = 0;
  while (taken < packets.size()) {
    QueuePair* const qp = s.qps.find(packets[taken].destination_qpn);
    if (qp == nullptr || !s.port_active) break;
    s.arrived_at.fetch(*qp);
    s.set_time(now_ns);
    const std::size_t count = qp->receive_short(packets.subspan(taken), route);
    if (count == 0) break;
    s.timers.update(*qp);
    s.settle_overflows();
    taken += count;
  }
  return taken;
}

// What comes to the queue pair of such a number, if `take` takes it.
template <class Take>
bool Adapter::State::receive_plainly(std::uint32_t qpn, std::uint64_t now_ns, Take take) {
  QueuePair* const qp = qps.find(qpn);
  if (qp == nullptr || !port_active) return false;
  arrived_at.fetch(*qp);
  set_time(now_ns);
  if (!take(*qp)) return false;
  timers.update(*qp);
  settle_overflows();
  return true;
}

bool Adapter::receive_lent(const Route& route, const ShortPacket& packet, AddressSpace& from_space,
                           std::uint64_t now_ns) {
  return state_->receive_plainly(packet.destination_qpn, now_ns, [&](QueuePair& qp) {
    return qp.receive_lent(packet, from_space, route);
  });
}

bool Adapter::receive_lent(const Route& route, const WholeAnswer& packet, AddressSpace& from_space,
                           std::uint64_t now_ns) {
  return state_->receive_plainly(packet.acknowledge.destination_qpn, now_ns, [&](QueuePair& qp) {
    return qp.receive_answer(packet, from_space, route);
  });
}

template <class LentPacket>
std::uint8_t* Adapter::State::place_ahead(std::uint32_t qpn, const Route& route,
                                          const LentPacket& packet, LookAhead& ahead) {
  QueuePair* const qp = qps.find(qpn);
  if (qp == nullptr || !port_active || (ahead.qpn != 0 && ahead.qpn != qpn)) return nullptr;
  std::uint8_t* const place = qp->place_ahead(packet, route, ahead);
  if (place != nullptr) ahead.qpn = qpn;
  return place;
}

std::uint8_t* Adapter::place_ahead(const Route& route, const ShortPacket& packet,
                                   LookAhead& ahead) {
  return state_->place_ahead(packet.destination_qpn, route, packet, ahead);
}

std::uint8_t* Adapter::place_ahead(const Route& route, const WholeAnswer& packet,
                                   LookAhead& ahead) {
  return state_->place_ahead(packet.acknowledge.destination_qpn, route, packet, ahead);
}

bool Adapter::receive_read(const Route& route, const ShortPacket& packet, std::uint64_t now_ns) {
  return state_->receive_plainly(packet.destination_qpn, now_ns,
                                 [&](QueuePair& qp) { return qp.receive_read(packet, route); });
}

bool Adapter::receive_acknowledge(const Route& route, const PlainAcknowledge& packet,
                                  std::uint64_t now_ns) {
  return state_->receive_plainly(packet.destination_qpn, now_ns, [&](QueuePair& qp) {
    return qp.receive_acknowledge(packet, route);
  });
}

void Adapter::payload_unreadable(const LentPayload& payload, std::uint64_t now_ns) {
  State& s = *state_;
  s.set_time(now_ns);
  if (QueuePair* qp = s.qps.find(payload.qpn); qp != nullptr) {
    qp->on_unreadable(payload);
    s.timers.update(*qp);
  }
  s.settle_overflows();
}

void Adapter::told() { state_->untold = false; }

bool Adapter::wants_driver() const {
  const State& s = *state_;
  return !s.ready.empty() || !s.farewells.empty() || s.untold;
}

}  // namespace softhca
