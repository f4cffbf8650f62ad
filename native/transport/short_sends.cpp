// Short SENDs of a neighbour's that follow each other, each into a receive of the queue pair's own,
// with completions that nobody is to be notified of. That is asked once for all of them, and what
// is counted is added once.

#include <algorithm>

#include "memory/guarded_access.hpp"
#include "memory/plain_access.hpp"
#include "transport/queue_pair.hpp"
#include "wire/opcode.hpp"
#include "wire/psn.hpp"

namespace softhca {
namespace {

constexpr bool is_send(std::uint8_t opcode) {
  return (opcode & 0xfe) == make_opcode(OpcodeTransport::RC, Operation::SEND_ONLY);
}

}  // namespace

// The bytes to the receive that many behind the next. False: its list is not so simple, or memory
// is not there.
[[gnu::always_inline]] inline bool Responder::fill_receive(std::uint64_t behind, ByteView payload,
                                                           PlainAccess& memory) const {
  if (payload.empty()) return true;
  const std::span<const Sge> sges = qp_.rq.sges_behind(behind);
  if (sges.size() != 1 || payload.size() > sges[0].length) return false;
  const std::uint8_t* const to = memory.at(sges[0]);  // The whole entry, as everywhere.
  return to != nullptr &&
         guarded_copy(const_cast<std::uint8_t*>(to), payload.data(), payload.size()) == 0;
}

// How many were taken, up to the first that asks for an acknowledgement. With the next it is not so
// simple, and nothing is changed by it. Precondition: takes_short(); the payloads lie in a ring.
std::size_t Responder::take_sends(std::span<const ShortPacket> packets, PlainAccess& memory) {
  const ShortPacket& first = packets.front();
  if (!is_send(first.opcode) || qp_.queues.srq != nullptr || has_receive_) return 0;
  Services& services = qp_.services;
  CompletionQueue& cq = *qp_.queues.recv_cq;
  const std::size_t most =
      std::min({packets.size(), std::size_t{qp_.rq.at_hand()}, std::size_t{cq.quiet_room()}});
  const std::uint32_t mtu = qp_.mtu();
  services.memory.write_behind.flush();
  const std::uint64_t now_ns = cq.timestamps() ? services.time.now_ns() : 0;
  std::uint32_t psn = expected_psn_;
  std::size_t taken = 0;
  bool asked = false;
  while (taken < most && !asked) {
    const ShortPacket& packet = packets[taken];
    const ByteView payload = packet.payload;
    if (!is_send(packet.opcode) || packet.psn != psn || packet.psns != 1 || payload.size() > mtu ||
        packet.destination_qpn != first.destination_qpn || packet.pkey != first.pkey ||
        !fill_receive(taken, payload, memory)) {
      break;
    }
    Completion& completion = cq.quiet_slot(taken);
    const ReceiveRing::Names names = qp_.rq.names_behind(taken);
    completion = {};
    completion.wr_id = names.wr_id;
    completion.timestamp_ns = now_ns;
    completion.opcode = WcOpcode::RECV;
    completion.qpn = qp_.qpn;
    completion.pkey_index = qp_.attr.pkey_index;
    completion.is_receive = true;
    completion.cqe = names.cqe;
    completion.byte_len = static_cast<std::uint32_t>(payload.size());
    completion.solicited = packet.solicited;
    completion.psn = psn;
    if (packet.has_immediate()) {
      completion.wc_flags = kWcWithImm;
      completion.immediate_or_rkey = packet.immediate;
    }
    psn = psn_add(psn, 1);
    asked = packet.ack_request;
    ++taken;
  }
  if (taken == 0) return 0;
  qp_.rq.drop_front(taken);
  cq.quiet_push(taken);
  services.activity += taken;
  qp_.count(&Counters::rx_send_requests, taken);
  nak_outstanding_ = false;
  expected_psn_ = psn;
  msn_ = psn_add(msn_, static_cast<std::uint32_t>(taken));
  const ShortPacket& last = packets[taken - 1];
  message_bytes_ = static_cast<std::uint32_t>(last.payload.size());
  if (asked) {
    push_acknowledge(last.psn);
  } else {
    acknowledge_some_day();
  }
  return taken;
}

}  // namespace softhca
