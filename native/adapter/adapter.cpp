// Packets and time: dispatch to queue pairs, and the turn that each of them gets to send.

#include "adapter/adapter.hpp"

#include <algorithm>
#include <utility>

#include "adapter/state.hpp"
#include "vocabulary/enums.hpp"

namespace softhca {
namespace {

// Of a reliable service: a requester that hears nothing would try until its retries are used up
// (IBTA Vol 1, 9.9.3). What manufacturers do with their opcodes is not known here.
bool is_owed_a_refusal(std::uint8_t reserved_opcode) {
  const OpcodeTransport transport = opcode_transport(reserved_opcode);
  return transport == OpcodeTransport::RC || transport == OpcodeTransport::XRC;
}

}  // namespace

Adapter::Adapter(AdapterConfig config) : state_(std::make_unique<State>(std::move(config))) {}
Adapter::~Adapter() = default;

void Adapter::State::deliver(QueuePair& qp, const Packet& packet, const Route& route,
                             std::size_t bytes, ReceiveReport& report) {
  const bool may_fill = !packet.info->has(kResponse);
  report.qpn = qp.qpn;
  report.has_wr = may_fill && qp.responder.current_receive(report.wr_id);
  qp.heard(route, report.numbered);
  qp.receive(packet, route, bytes, report.verdict);
  if (!report.has_wr) {
    report.has_wr = may_fill && qp.responder.current_receive(report.wr_id);
  }
  timers.update(qp);
}

bool Adapter::answered_request(ByteView datagram, std::uint64_t& wr_id) const {
  Packet packet;
  if (decode_packet(datagram, packet) != DecodeStatus::OK || !packet.info->has(kResponse)) {
    return false;
  }
  const QueuePair* qp = state_->qps.find(packet.bth.destination_qpn);
  return qp != nullptr && qp->requester.answered_request(packet.bth.psn, wr_id);
}

ReceiveReport Adapter::receive(const Route& route, ByteView datagram, std::uint64_t now_ns,
                               bool more) {
  State& s = *state_;
  s.set_time(now_ns);
  s.memory_table.write_behind.may_wait = more;
  ReceiveReport report;
  s.receive(route, datagram, report);
  if (!more) s.memory_table.write_behind.flush();
  return report;
}

// False: it is none of the packets that are short, or the general way has to take it.
bool Adapter::State::receive_short(const Route& route, ByteView datagram, ReceiveReport& report) {
  ShortPacket packet;
  if (observer != nullptr || !decode_short_datagram(datagram, packet)) return false;
  QueuePair* const qp = qps.find(packet.destination_qpn);
  if (qp == nullptr || qp->congestion != nullptr) return false;
  report.has_wr = qp->responder.current_receive(report.wr_id);
  qp->heard(route, report.numbered);
  if (qp->receive_short({&packet, 1}, route) == 0) return false;
  report.qpn = qp->qpn;
  timers.update(*qp);
  return true;
}

// What is assumed of an IPv4 identification is the place in a message of the kernel's. But it joins
// what has left one by one as well, with 0 each.
IcrcVerdict Adapter::State::check_icrc(const Route& route, ByteView datagram) {
  IcrcVerdict verdict = received_icrcs.check(route, datagram, config.icrc_level);
  if (verdict.solved) {
    verdict.solved = verdict.identification != 0 || !verdict.dont_fragment;
  } else if (!verdict.good && route.identification != 0) {
    Route single = route;
    single.identification = 0;
    verdict = received_icrcs.check(single, datagram, IcrcLevel::STRICT);
  }
  return verdict;
}

void Adapter::State::receive(const Route& route, ByteView datagram, ReceiveReport& report) {
  const auto drop = [&](std::uint64_t Counters::*counter, const char* why) {
    ++(counters.*counter);
    report.verdict = why;
  };
  if (!port_active) {
    return drop(&Counters::port_down_drops, "the port is down");
  }
  const IcrcVerdict icrc = check_icrc(route, datagram);
  const bool solves = config.icrc_level == IcrcLevel::SOLVE;
  if (solves ? !icrc_trust.accept(route.source, icrc) : !icrc.good) {
    return drop(&Counters::rx_icrc_encapsulated, "bad ICRC");
  }
  if (icrc.solved) {
    ++counters.rx_icrc_solved;
    report.numbered = icrc.identification != 0;
  }
  if (receive_short(route, datagram, report)) {
    settle_overflows();
    return;
  }
  Packet packet;
  const DecodeStatus status = decode_packet(datagram, packet);
  if (status == DecodeStatus::RESERVED_OPCODE && is_owed_a_refusal(packet.bth.opcode)) {
    packet.info = &opcode_info(packet.bth.opcode);
  } else if (status != DecodeStatus::OK) {
    return drop(&Counters::rx_malformed, decode_status_name(status));
  }
  if (packet.info->has(kCnp)) {
    QueuePair* const told = qps.find(packet.bth.destination_qpn);
    if (told == nullptr || !told->on_notification(route)) {
      return drop(&Counters::rx_cnp, "congestion notification, ignored");
    }
    ++counters.rx_cnp;
    report.qpn = told->qpn;
    timers.update(*told);
    return;
  }
  if (packet.bth.destination_qpn == 0xffffff) {
    const auto group = multicast.find(route.destination.raw);
    if (group == multicast.end()) {
      return drop(&Counters::rx_unknown_qp, "no member of this multicast group");
    }
    for (const std::uint32_t qpn : group->second) {
      deliver(*qps.find(qpn), packet, route, datagram.size(), report);
    }
  } else if (QueuePair* qp = qps.find(packet.bth.destination_qpn); qp != nullptr) {
    deliver(*qp, packet, route, datagram.size(), report);
  } else {
    return drop(&Counters::rx_unknown_qp, "no such queue pair");
  }
  settle_overflows();
}

bool Adapter::next_packet(ByteSpan buffer, OutgoingPacket& out, std::uint64_t now_ns,
                          bool patient) {
  State& s = *state_;
  s.set_time(now_ns);
  // Between two rounds memory changes as it likes.
  if (!std::exchange(s.turn_kept, false)) {
    s.memory_table.read_ahead.forget();
  } else if (s.go_on(buffer, out)) {
    return true;
  }
  const auto leaves = [&s] {
    s.counters.port_down_drops += s.port_active ? 0 : 1;
    return s.port_active;
  };
  bool sent = s.take_farewell(buffer, out) && leaves();
  while (!sent && !s.ready.empty()) {
    QueuePair* qp = s.qps.find(s.ready.front());
    s.ready.pop_front();
    if (qp == nullptr || qp->listed != QueuePair::Listed::FOR_WIRE) {
      continue;
    }
    qp->listed = QueuePair::Listed::NOWHERE;
    if (qp->local != nullptr) {
      s.schedule(*qp);
      continue;
    }
    Outlet outlet{.buffer = buffer, .wire = &out, .patient = patient};
    sent = qp->next_packet(outlet);
    if (sent) {
      s.last_sender = qp->qpn;
      s.schedule(*qp);
    }
    s.hold_back(*qp, outlet.held_back);
    sent = sent && leaves();
    s.timers.update(*qp);
  }
  s.settle_overflows();
  return sent;
}

bool Adapter::State::go_on(ByteSpan buffer, OutgoingPacket& out) {
  if (!port_active || !farewells.empty() || ready.empty() || ready.front() != last_sender) {
    return false;
  }
  QueuePair* const qp = qps.find(last_sender);
  if (qp == nullptr || qp->listed != QueuePair::Listed::FOR_WIRE || qp->local != nullptr) {
    return false;
  }
  Outlet outlet{.buffer = buffer, .wire = &out};
  if (!qp->go_on(outlet)) return false;
  if (ready.size() > 1) {
    ready.pop_front();
    ready.push_back(last_sender);
  }
  timers.update(*qp);
  return true;
}

// Who has sent is the last in line.
void Adapter::keep_turn() {
  State& s = *state_;
  s.turn_kept = true;
  if (s.ready.size() < 2 || s.ready.back() != s.last_sender) return;
  s.ready.pop_back();
  s.ready.push_front(s.last_sender);
}

void Adapter::State::hold_back(QueuePair& qp, bool wanted) {
  if (wanted && !qp.held_back) {
    qp.held_back = true;
    held_acks.push_back(qp.qpn);
  } else if (qp.held_back && !qp.responder.has_output()) {
    // It left with a request.
    qp.held_back = false;
    std::erase(held_acks, qp.qpn);
  }
}

bool Adapter::heeds_fields() const { return state_->heeds_fields; }

bool Adapter::holds_acks() const { return !state_->held_acks.empty(); }

void Adapter::release_acks() {
  for (const std::uint32_t qpn : state_->held_acks) {
    if (QueuePair* qp = state_->qps.find(qpn); qp != nullptr) {
      qp->held_back = false;
      state_->schedule(*qp);
    }
  }
  state_->held_acks.clear();
}

std::uint64_t Adapter::next_deadline_ns() const {
  const std::uint64_t next_ns = std::min(state_->timers.next_ns(), state_->stalled_until_ns);
  const auto& held_back = state_->held_back;
  return held_back.empty() ? next_ns : std::min(next_ns, held_back.begin()->first);
}

void Adapter::use_clock(Clock& clock) { state_->time.use(clock); }

void Adapter::begin_call() { state_->time.begin(); }

void Adapter::advance(std::uint64_t now_ns, bool unread) {
  State& s = *state_;
  s.set_time(now_ns);
  s.unread = unread || (s.paths != nullptr && s.paths->has_unread());
  while (const std::uint32_t qpn = s.timers.pop_due(now_ns)) {
    QueuePair* const qp = s.qps.find(qpn);
    if (qp->deadline_ns() <= now_ns) {
      qp->advance();
    }
    s.timers.update(*qp);
  }
  if (s.stalled_until_ns <= now_ns) s.ask_stalled_paths();
  s.release_held_back();
  s.settle_overflows();
}

const AdapterConfig& Adapter::config() const { return state_->config; }
std::uint16_t Adapter::source_port(std::uint32_t qpn) const { return state_->source_port(qpn); }
const Counters& Adapter::counters() const { return state_->counters; }

Result<Counters> Adapter::qp_counters(std::uint32_t qpn) const {
  const QueuePair* qp = state_->qps.find(qpn);
  if (qp == nullptr) {
    return refuse(EINVAL, "qp", qpn, "no such queue pair");
  }
  return qp->counters;
}

Result<std::uint64_t> Adapter::qp_rate(std::uint32_t qpn) const {
  const QueuePair* qp = state_->qps.find(qpn);
  if (qp == nullptr) {
    return refuse(EINVAL, "qp", qpn, "no such queue pair");
  }
  return qp->congestion == nullptr ? 0 : qp->congestion->rate_bits_per_second();
}

Result<QpLoad> Adapter::qp_load(std::uint32_t qpn) const {
  const QueuePair* qp = state_->qps.find(qpn);
  if (qp == nullptr) {
    return refuse(EINVAL, "qp", qpn, "no such queue pair");
  }
  return qp->load();
}

bool Adapter::next_event(AsyncEvent& event) { return state_->async_events.pop(event); }

std::uint64_t Adapter::activity() const { return state_->activity; }

void Adapter::observe(Observer* observer) {
  state_->observer = state_->memory_table.observer = observer;
}

bool Adapter::has_event() const { return !state_->async_events.empty(); }

bool Adapter::next_completion_event(CompletionEvent& event) {
  if (state_->completion_events.empty()) {
    return false;
  }
  event = state_->completion_events.front();
  state_->completion_events.pop_front();
  return true;
}

}  // namespace softhca
