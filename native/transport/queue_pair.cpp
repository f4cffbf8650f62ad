#include "transport/queue_pair.hpp"

#include <algorithm>
#include <utility>

#include "memory/guarded_access.hpp"
#include "transport/summed_payload.hpp"
#include "wire/icrc.hpp"

namespace softhca {
namespace {

WcOpcode completion_opcode(WrOpcode opcode) {
  switch (opcode) {
    case WrOpcode::RDMA_WRITE:
    case WrOpcode::RDMA_WRITE_WITH_IMM:
      return WcOpcode::RDMA_WRITE;
    case WrOpcode::RDMA_READ:
      return WcOpcode::RDMA_READ;
    case WrOpcode::ATOMIC_CMP_AND_SWP:
      return WcOpcode::COMP_SWAP;
    case WrOpcode::ATOMIC_FETCH_AND_ADD:
      return WcOpcode::FETCH_ADD;
    case WrOpcode::MASKED_ATOMIC_CMP_AND_SWP:
      return WcOpcode::MASKED_COMP_SWAP;
    case WrOpcode::MASKED_ATOMIC_FETCH_AND_ADD:
      return WcOpcode::MASKED_FETCH_ADD;
    case WrOpcode::FLUSH:
      return WcOpcode::FLUSH;
    case WrOpcode::ATOMIC_WRITE:
      return WcOpcode::ATOMIC_WRITE;
    case WrOpcode::LOCAL_INV:
      return WcOpcode::LOCAL_INV;
    case WrOpcode::BIND_MW:
      return WcOpcode::BIND_MW;
    case WrOpcode::REG_MR:
      return WcOpcode::REG_MR;
    default:
      return WcOpcode::SEND;
  }
}

OpcodeTransport wire_transport(QpType type) {
  switch (type) {
    case QpType::UC:
      return OpcodeTransport::UC;
    case QpType::UD:
      return OpcodeTransport::UD;
    case QpType::XRC_SEND:
    case QpType::XRC_RECV:
      return OpcodeTransport::XRC;
    default:
      return OpcodeTransport::RC;
  }
}

void put_padding(ByteSpan pad) { std::ranges::fill(pad, std::uint8_t{0}); }

}  // namespace

QueuePair::QueuePair(Services& adapter_services, std::uint32_t number, const QpInit& qp_init,
                     Queues qp_queues)
    : services(adapter_services),
      qpn(number),
      init(qp_init),
      queues(qp_queues),
      migration(*this),
      requester(*this),
      responder(*this) {
  attr.cap = init.cap;
  if (services.congestion.on() && init.type != QpType::UD) {
    congestion = std::make_unique<CongestionControl>(services.congestion);
  }
  if (init.type != QpType::XRC_RECV) {
    // Room for the eight bytes of an ATOMIC WRITE, whatever was asked for.
    sq.allocate(init.cap.max_send_wr, init.cap.max_send_sge,
                std::max<std::uint32_t>(init.cap.max_inline_data, 8));
  }
  if (queues.srq == nullptr && init.type != QpType::XRC_RECV && init.type != QpType::XRC_SEND) {
    rq.allocate(init.cap.max_recv_wr, init.cap.max_recv_sge);
  }
}

// --- packets
// --------------------------------------------------------------------------------------------------------

bool QueuePair::receive(const Packet& packet, const Route& from, std::size_t datagram_bytes,
                        const char*& verdict) {
  return admit(packet, from, datagram_bytes, verdict) &&
         dispatch(packet, from, datagram_bytes, verdict);
}

bool QueuePair::admit(const Packet& packet, const Route& from, std::size_t datagram_bytes,
                      const char*& verdict) {
  const auto drop = [&](std::uint64_t Counters::*counter, const char* why) {
    count(counter);
    verdict = why;
    return false;
  };
  count(&Counters::rcvd_pkts, packet.psns);
  count(&Counters::rcvd_bytes, datagram_bytes);
  if (queue_pair_transport(packet.bth.opcode) != wire_transport(init.type)) {
    return drop(&Counters::rx_unknown_qp, "another service type");
  }
  if (state() == QpState::RESET || state() == QpState::INIT || state() == QpState::ERR) {
    return drop(&Counters::rx_wrong_state, "the queue pair's state does not receive");
  }
  // Before the P_Key is looked at: a packet that migrates carries the other path's.
  if (init.type != QpType::UD && !migration.accept(packet, from)) {
    return drop(&Counters::rx_unknown_qp, "not from the connected peer");
  }
  if (!pkeys_match(packet.bth.pkey, pkey)) {
    return drop(&Counters::bad_pkey_cntr, "P_Key mismatch");
  }
  return true;
}

bool QueuePair::dispatch(const Packet& packet, const Route& from, std::size_t datagram_bytes,
                         const char*& verdict) {
  if (init.type == QpType::UD) {
    responder.on_datagram(packet, from, datagram_bytes);
    return true;
  }
  if (congestion != nullptr && (from.traffic_class & kEcnBits) == kCongestionExperienced) {
    note_mark(packet);
  }
  if (packet.info->has(kResponse)) {
    requester.on_response(packet);
  } else if (init.type == QpType::XRC_SEND) {
    count(&Counters::rx_unknown_qp);
    verdict = "a request to an XRC initiator";
    return false;
  } else if (is_reliable()) {
    responder.on_reliable(packet);
  } else {
    responder.on_unreliable(packet);
  }
  return true;
}

bool QueuePair::next_packet(Outlet& out) {
  return congestion == nullptr ? next_uncontrolled(out) : next_controlled(out);
}

bool QueuePair::go_on(Outlet& out) {
  if (congestion != nullptr || responder.has_output() || !requester.send_plainly(out)) return false;
  took_turn(false);
  return true;
}

// Replies go first, but take turns with requests: a peer that reads without end would keep them
// back until their retries are used up.
bool QueuePair::next_uncontrolled(Outlet& out) {
  if (out.patient && responder.may_be_held_back()) {
    return next_patiently(out);
  }
  const bool request_is_due = replied_last_;
  replied_last_ = false;
  if (request_is_due && requester.next_packet(out)) {
    return true;
  }
  if (responder.next_packet(out)) {
    replied_last_ = true;
    return true;
  }
  return !request_is_due && requester.next_packet(out);
}

// An acknowledgement follows the requests that are due, the last of whose train it can be; without
// any, it waits until there are some, or somebody is no longer patient.
bool QueuePair::next_patiently(Outlet& out) {
  if (requester.next_packet(out)) {
    led_ = true;
    return true;
  }
  if (std::exchange(led_, false)) {
    return responder.next_packet(out);
  }
  out.held_back = true;
  return false;
}

void QueuePair::advance() {
  if (congestion != nullptr && congestion->due(services.time.now_ns())) {
    services.schedule(*this);
  }
  responder.advance();
  requester.advance();
}

// --- congestion
// -----------------------------------------------------------------------------------------------------

// Requests and READ responses keep to the rate; acknowledgements do not wait.
bool QueuePair::next_controlled(Outlet& out) {
  if (out.wire == nullptr) {
    return next_uncontrolled(out);
  }
  if (congestion->wants_notification()) {
    send_notification(out);
    return true;
  }
  if (responder.acknowledges_next()) {
    return responder.next_packet(out);
  }
  if (!congestion->may_send(services.time.now_ns())) {
    return false;
  }
  if (!next_uncontrolled(out)) {
    return false;
  }
  congestion->sent(out.wire->datagram.size(), services.time.now_ns());
  return true;
}

void QueuePair::note_mark(const Packet& packet) {
  const bool is_data = !packet.info->has(kAcknowledge);
  services.counters.np_ecn_marked_roce_packets += is_data;
  if (is_data && congestion->on_mark(services.time.now_ns())) {
    services.schedule(*this);
  }
}

// BTH with BECN set, and sixteen reserved bytes (IBTA Vol 1, A17.9.3). It is not to be marked.
void QueuePair::send_notification(Outlet& out) {
  constexpr std::size_t kReservedBytes = 16;
  congestion->notified();
  Packet packet;
  packet.bth.opcode = kCnpOpcode;
  packet.bth.becn = true;
  packet.bth.pkey = pkey;
  packet.bth.destination_qpn = attr.dest_qp_num;
  const std::size_t headers = encode_headers(packet, out.buffer);
  std::ranges::fill(out.buffer.subspan(headers, kReservedBytes), std::uint8_t{0});
  seal(packet, headers, kReservedBytes, out);
  out.wire->route.traffic_class &= static_cast<std::uint8_t>(~kEcnBits);
  count(&Counters::np_cnp_sent);
}

bool QueuePair::on_notification(const Route& from) {
  if (congestion == nullptr || from.source != route.destination || state() == QpState::RESET) {
    return false;
  }
  congestion->on_notification(services.time.now_ns());
  count(&Counters::rp_cnp_handled);
  return true;
}

Packet QueuePair::header(Operation operation, std::uint32_t psn, bool masked) const {
  Packet packet;
  OpcodeTransport transport = wire_transport(init.type);
  if (masked) {
    transport = transport == OpcodeTransport::XRC ? OpcodeTransport::MASKED_XRC
                                                  : OpcodeTransport::MASKED_RC;
  }
  packet.bth.opcode = make_opcode(transport, operation);
  packet.bth.pkey = pkey;
  packet.bth.migrated = migration.request_bit();
  packet.bth.destination_qpn = attr.dest_qp_num;
  packet.bth.psn = psn;
  packet.info = &opcode_info(packet.bth.opcode);
  return packet;
}

void QueuePair::seal(Packet& packet, std::size_t header_bytes, std::size_t payload_bytes,
                     Outlet& outlet) {
  const std::size_t end = header_bytes + payload_bytes;
  put_padding(outlet.buffer.subspan(end, packet.bth.pad_count));
  seal(end + packet.bth.pad_count, outlet);
}

void QueuePair::seal(std::size_t bytes, Outlet& outlet) {
  const ByteSpan transport = outlet.buffer.first(bytes);
  services.sent_icrcs.append(route_taken(), transport);
  hand_out(transport, outlet);
}

bool QueuePair::fetch_and_seal(std::size_t header_bytes, std::size_t payload_bytes, std::size_t pad,
                               const std::uint8_t* from, Outlet& outlet) {
  const std::size_t end = header_bytes + payload_bytes;
  const ByteSpan transport = outlet.buffer.first(end + pad);
  const ByteSpan payload = transport.subspan(header_bytes, payload_bytes);
  put_padding(transport.subspan(end));
  if (!may_sum(payload_bytes)) {
    if (guarded_copy(payload.data(), from, payload_bytes) != 0) return false;
    seal(transport.size(), outlet);
    return true;
  }
  IcrcMemory& icrcs = services.sent_icrcs;
  std::uint32_t crc = icrcs.before_payload(route_taken(), transport, header_bytes);
  if (!copy_and_sum(from, payload, pad, crc)) return false;
  icrcs.append_summed(route_taken(), transport, crc);
  hand_out(transport, outlet);
  return true;
}

const Route& QueuePair::route_taken() const {
  return init.type == QpType::UD ? sq.at(sq.oldest()).route : route;
}

// `transport` has its ICRC behind it.
void QueuePair::hand_out(ByteSpan transport, Outlet& outlet) {
  OutgoingPacket& out = *outlet.wire;
  out.route = route_taken();
  out.datagram = outlet.buffer.first(transport.size() + kIcrcBytes);
  out.qpn = qpn;
  out.has_wr = false;
  out.retransmitted = false;
  count(&Counters::sent_pkts);
  count(&Counters::sent_bytes, out.datagram.size());
}

void QueuePair::seal_local(const Packet& packet, std::uint32_t psns, ByteView payload,
                           Outlet& outlet) {
  LocalPacket& out = *outlet.local;
  out.packet = packet;
  out.packet.psns = psns;
  out.packet.payload = payload;
  out.packet.pieces = out.pieces;
  out.packet.pieces_bytes = 0;
  for (const MemoryPiece& piece : out.pieces) out.packet.pieces_bytes += piece.length;
  out.route = route;
  out.qpn = qpn;
  count(&Counters::sent_pkts, psns);
  count(&Counters::sent_bytes, wire_bytes(out.packet));
}

// A request goes again with a copy of its payload: either that can be made, or it fails here. An
// answer is refused, as it would have been if the region had been found gone before it left.
void QueuePair::on_unreadable(const LentPayload& payload) {
  copies_payload = true;
  if (payload.is_answer) {
    responder.on_unreadable(payload.psn);
  } else {
    requester.repeat_from(payload.psn);
  }
}

// --- completions and errors
// -----------------------------------------------------------------------------------------

void QueuePair::complete_send(WcStatus status, const AccessFault& fault, bool by_peer) {
  const SendWqe& wqe = sq.at(sq.oldest());
  const bool failed = status != WcStatus::SUCCESS;
  // Errors are reported for unsignaled work requests too (IBTA Vol 1, 10.7.3.1).
  const bool reported = failed || init.sq_sig_all || wqe.signaled();
  if (!reported) {
    sq.complete_oldest(false);
    return;
  }
  Completion aside;
  Completion* const room = services.begin_quietly(*queues.send_cq);
  Completion& completion = room != nullptr ? *room : aside;
  completion = {};
  completion.wr_id = wqe.wr_id;
  completion.cqe = wqe.cqe;
  completion.status = status;
  completion.opcode = completion_opcode(wqe.opcode);
  completion.qpn = qpn;
  completion.psn = wqe.first_psn;
  if (wqe.is_read() || wqe.is_atomic()) {
    completion.byte_len = wqe.is_atomic() ? 8 : static_cast<std::uint32_t>(wqe.length);
  }
  completion.reason = fault.reason;
  completion.by_peer = by_peer;
  completion.key = fault.key;
  completion.address = fault.address;
  completion.length = fault.length;
  // The slot is free before the completion can be seen: who polls it may post at once.
  sq.complete_oldest(true);
  if (failed) {
    count(status == WcStatus::WR_FLUSH_ERR ? &Counters::req_cqe_flush_error
                                           : &Counters::req_cqe_error);
  }
  if (room != nullptr) {
    services.end_quietly(*queues.send_cq, completion);
  } else {
    services.complete(*queues.send_cq, completion);
  }
}

void QueuePair::set_state(QpState to) {
  const QpState from = attr.qp_state;
  attr.qp_state = to;
  if (services.observer != nullptr && from != to) {
    tell_state(from);
  }
}

void QueuePair::tell_state(QpState from) const {
  const bool asks = attr.qp_state != QpState::INIT && attr.qp_state != QpState::RTR;
  services.observer->changed_state(qpn, from, attr.qp_state, attr.qp_access_flags,
                                   asks ? attr.max_rd_atomic : attr.max_dest_rd_atomic);
}

// Before anything is flushed: who sees that may use the memory again.
void QueuePair::recall_payloads(LentPayloads which) { services.recall_payloads(qpn, which); }

void QueuePair::enter_error() {
  if (state() == QpState::ERR) {
    return;
  }
  // What answers the peer is owed still, only the responder knows.
  recall_payloads(LentPayloads::OF_REQUESTS);
  set_state(QpState::ERR);
  attr.sq_draining = false;
  requester.flush();
  responder.flush();
  if (queues.srq != nullptr) {
    services.raise(EventType::QP_LAST_WQE_REACHED, qpn);
  }
}

void QueuePair::requester_failed() {
  if (is_reliable()) {
    responder.end_answers();
    enter_error();
    return;
  }
  recall_payloads();
  set_state(QpState::SQE);
  attr.sq_draining = false;
  requester.flush();
}

void QueuePair::check_drained() {
  if (state() == QpState::SQD && attr.sq_draining && requester.drained()) {
    attr.sq_draining = false;
    if (attr.en_sqd_async_notify) {
      services.raise(EventType::SQ_DRAINED, qpn);
    }
  }
}

}  // namespace softhca
