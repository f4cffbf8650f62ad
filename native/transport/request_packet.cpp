// Which packet stands for a part of a work request.

#include <algorithm>
#include <cstring>
#include <limits>

#include "transport/queue_pair.hpp"
#include "transport/requester.hpp"
#include "transport/summed_payload.hpp"
#include "wire/psn.hpp"

namespace softhca {
namespace {

Operation send_operation(WrOpcode opcode, bool first, bool last) {
  if (!last) {
    return first ? Operation::SEND_FIRST : Operation::SEND_MIDDLE;
  }
  switch (opcode) {
    case WrOpcode::SEND_WITH_IMM:
      return first ? Operation::SEND_ONLY_WITH_IMMEDIATE : Operation::SEND_LAST_WITH_IMMEDIATE;
    case WrOpcode::SEND_WITH_INV:
      return first ? Operation::SEND_ONLY_WITH_INVALIDATE : Operation::SEND_LAST_WITH_INVALIDATE;
    default:
      return first ? Operation::SEND_ONLY : Operation::SEND_LAST;
  }
}

Operation write_operation(WrOpcode opcode, bool first, bool last) {
  if (!last) {
    return first ? Operation::RDMA_WRITE_FIRST : Operation::RDMA_WRITE_MIDDLE;
  }
  if (opcode == WrOpcode::RDMA_WRITE_WITH_IMM) {
    return first ? Operation::RDMA_WRITE_ONLY_WITH_IMMEDIATE
                 : Operation::RDMA_WRITE_LAST_WITH_IMMEDIATE;
  }
  return first ? Operation::RDMA_WRITE_ONLY : Operation::RDMA_WRITE_LAST;
}

}  // namespace

Requester::Plan Requester::plan(const SendWqe& wqe, std::uint32_t packet_number,
                                std::uint32_t most) const {
  return wqe.is_read()        ? plan_read(wqe, packet_number)
         : wqe.is_atomic()    ? plan_atomic(wqe)
         : wqe.is_confirmed() ? plan_confirmed(wqe)
                              : plan_message(wqe, packet_number, most);
}

// `most` packets at most, which leave as one.
Requester::Plan Requester::plan_message(const SendWqe& wqe, std::uint32_t packet_number,
                                        std::uint32_t most) const {
  const std::uint32_t psns = std::min(most, wqe.psn_count - packet_number);
  const bool first = packet_number == 0;
  const bool last = packet_number + psns == wqe.psn_count;
  const Operation operation = wqe.is_write() ? write_operation(wqe.opcode, first, last)
                                             : send_operation(wqe.opcode, first, last);
  Plan plan{.packet = qp_.header(operation, psn_add(wqe.first_psn, packet_number)), .psns = psns};
  plan.offset = std::uint64_t{packet_number} * qp_.mtu();
  plan.payload_bytes = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(std::uint64_t{plan.psns} * qp_.mtu(), wqe.length - plan.offset));
  plan.packet.bth.solicited = last && wqe.solicited() && wqe.opcode != WrOpcode::RDMA_WRITE;
  plan.packet.reth = {wqe.remote_address, wqe.rkey, static_cast<std::uint32_t>(wqe.length)};
  plan.packet.immediate = wqe.immediate;
  plan.packet.invalidate_rkey = wqe.invalidate_rkey;
  plan.packet.xrc_srqn = wqe.xrc_srqn;
  if (qp_.init.type == QpType::UD) {
    plan.packet.bth.destination_qpn = wqe.remote_qpn;
    // The most significant bit asks for the queue pair's own Q_Key (IBTA Vol 1, 10.2.5).
    const bool own = (wqe.remote_qkey & 0x80000000u) != 0;
    plan.packet.deth = {own ? qp_.attr.qkey : wqe.remote_qkey, qp_.qpn};
  }
  return plan;
}

Requester::Plan Requester::plan_read(const SendWqe& wqe, std::uint32_t packet_number) const {
  Plan plan;
  const std::uint32_t chunk = wqe.read_chunk;
  const std::uint32_t end = std::min(wqe.psn_count, (packet_number / chunk + 1) * chunk);
  const std::uint64_t offset = std::uint64_t{packet_number} * qp_.mtu();
  const std::uint64_t until = std::min<std::uint64_t>(wqe.length, std::uint64_t{end} * qp_.mtu());
  plan.packet = qp_.header(Operation::RDMA_READ_REQUEST, psn_add(wqe.first_psn, packet_number));
  plan.packet.reth = {wqe.remote_address + offset, wqe.rkey,
                      static_cast<std::uint32_t>(until - offset)};
  plan.packet.xrc_srqn = wqe.xrc_srqn;
  plan.psns = end - packet_number;
  return plan;
}

Requester::Plan Requester::plan_atomic(const SendWqe& wqe) const {
  Plan plan;
  const bool swaps = wqe.swaps();
  plan.packet = qp_.header(swaps ? Operation::COMPARE_SWAP : Operation::FETCH_ADD, wqe.first_psn,
                           wqe.is_masked());
  plan.packet.atomic = {wqe.remote_address,
                        wqe.rkey,
                        swaps ? wqe.swap : wqe.compare_add,
                        swaps ? wqe.compare_add : wqe.compare_mask,
                        wqe.compare_mask,
                        wqe.swap_mask};
  plan.packet.xrc_srqn = wqe.xrc_srqn;
  return plan;
}

// FLUSH and ATOMIC WRITE (Annex A19).
Requester::Plan Requester::plan_confirmed(const SendWqe& wqe) const {
  Plan plan;
  const bool flushes = wqe.opcode == WrOpcode::FLUSH;
  plan.packet = qp_.header(flushes ? Operation::FLUSH : Operation::ATOMIC_WRITE, wqe.first_psn);
  plan.payload_bytes = flushes ? 0 : 8;
  plan.packet.reth = {wqe.remote_address, wqe.rkey, flushes ? wqe.flush.length : 8};
  plan.packet.feth = {wqe.flush.placement_type, wqe.flush.selectivity};
  plan.packet.xrc_srqn = wqe.xrc_srqn;
  return plan;
}

// Encodes the packet and fetches its payload. False: the work request failed.
bool Requester::fill_wire(std::uint64_t index, Plan& plan, bool again, Outlet& out) {
  plan.packet.bth.ack_request = wants_ack(qp_.sq.at(index), plan, again);
  plan.packet.bth.pad_count = static_cast<std::uint8_t>(-plan.payload_bytes & 3);
  const std::size_t header_bytes = encode_headers(plan.packet, out.buffer);
  if (const std::uint8_t* from = payload_to_sum(index, plan);
      from != nullptr &&
      qp_.fetch_and_seal(header_bytes, plan.payload_bytes, plan.packet.bth.pad_count, from, out)) {
    return true;
  }
  const ByteSpan payload = out.buffer.subspan(header_bytes, plan.payload_bytes);
  if (!fetch_payload(index, plan, payload)) {
    return false;
  }
  qp_.seal(plan.packet, header_bytes, payload.size(), out);
  return true;
}

// Bytes that the window lets leave after a packet, at most.
std::uint64_t Requester::may_follow() const {
  if (!qp_.is_reliable()) {
    return std::numeric_limits<std::uint64_t>::max();
  }
  const std::int32_t left =
      static_cast<std::int32_t>(window()) - psn_distance(unacked_psn_, next_psn_) - 1;
  return left <= 0 ? 0 : std::uint64_t{static_cast<std::uint32_t>(left)} * qp_.mtu();
}

// Where a payload lies that is long, and simple to reach; else null.
const std::uint8_t* Requester::payload_to_sum(std::uint64_t index, const Plan& plan) const {
  if (!may_sum(plan.payload_bytes) || qp_.sq.at(index).is_inline()) return nullptr;
  return qp_.services.memory.plain_entry(qp_.init.pd, qp_.sq.sges(index), plan.offset,
                                         plan.payload_bytes, 0);
}

bool Requester::fetch_payload(std::uint64_t index, const Plan& plan, ByteSpan to) {
  if (to.empty()) {
    return true;
  }
  if (qp_.sq.at(index).is_inline()) {
    std::memcpy(to.data(), qp_.sq.inline_bytes(index).data() + plan.offset, to.size());
    return true;
  }
  MemoryTable& memory = qp_.services.memory;
  const SendWqe& wqe = qp_.sq.at(index);
  // Before it was posted its memory was the user's.
  if (plan.offset == 0) {
    memory.read_ahead.forget();
  }
  const std::uint64_t rest = wqe.length - plan.offset - to.size();
  const AccessFault fault =
      memory.gather(qp_.init.pd, qp_.sq.sges(index), plan.offset, to, std::min(rest, may_follow()));
  if (!fault.ok()) {
    fail(index, WcStatus::LOC_PROT_ERR, fault, false);
  }
  return fault.ok();
}

// Short payloads are copied, long ones stay where they are; those of unreliable connections only
// until send() returns, for what has left is the user's again.
bool Requester::fill_local(std::uint64_t index, Plan& planned, std::uint32_t packet_number,
                           Outlet& out) {
  const SendWqe& wqe = qp_.sq.at(index);
  LocalPacket& local = *out.local;
  local.pieces.clear();
  const bool long_payload = planned.payload_bytes > kLocalCopiedBytes;
  const bool must_copy =
      qp_.copies_payload || (!qp_.is_reliable() && !qp_.local->delivers_at_once());
  const std::uint32_t most_brought = out.most_brought(qp_.mtu());
  if (long_payload && must_copy) {
    planned = plan(wqe, packet_number, most_brought);
  } else if (long_payload && !wqe.is_inline()) {
    bool listed = false;
    const AccessFault fault =
        qp_.services.memory.list(qp_.init.pd, qp_.sq.sges(index), planned.offset,
                                 planned.payload_bytes, local.pieces, listed);
    if (!fault.ok()) {
      fail(index, WcStatus::LOC_PROT_ERR, fault, false);
      return false;
    }
    if (!listed || !qp_.local->can_fetch(local.pieces)) {
      local.pieces.clear();
      planned = plan(wqe, packet_number, most_brought);
    }
  }
  planned.packet.bth.ack_request = wants_ack(wqe, planned, false);
  ByteView payload;
  if (local.pieces.empty()) {
    const ByteSpan room = out.buffer.first(planned.payload_bytes);
    if (!fetch_payload(index, planned, room)) {
      return false;
    }
    payload = room;
  }
  // A READ takes the PSNs of its answer, but is one packet.
  qp_.seal_local(planned.packet, wqe.is_read() ? 1 : planned.psns, payload, out);
  return true;
}

// An acknowledgement makes a completion, or nobody can tell whether it is late.
bool Requester::is_waited_for(const SendWqe& wqe) const {
  return wqe.signaled() || qp_.init.sq_sig_all || wqe.is_answered() || !qp_.services.lazy_acks ||
         (qp_.local == nullptr && !timer_.will_probe());
}

bool Requester::wants_ack(const SendWqe& wqe, const Plan& plan, bool again) {
  if (!qp_.is_reliable()) {
    return false;
  }
  const bool ends_message = !plan.packet.info->has(kFirst | kMiddle) && asks_at_its_end(wqe);
  if (qp_.local != nullptr) {
    const bool asks = ends_message || plan.psns > 1 || since_ack_request_ + 1 >= kAckRequestEvery;
    since_ack_request_ = asks ? 0 : since_ack_request_ + 1;
    return asks;
  }
  return wants_ack_on_wire(ends_message, plan.packet.bth.psn, again);
}

// The last packet of a message, or its only one.
bool Requester::asks_at_its_end(const SendWqe& wqe) const {
  return is_waited_for(wqe) || since_ack_request_ + 1 >= kAckRequestEvery;
}

bool Requester::wants_ack_on_wire(bool ends_and_asks, std::uint32_t psn, bool again) {
  ++since_ack_request_;
  // A repeated packet that opens the window asks at once: its answer is what ends the retry.
  const bool opens_window = again && psn == unacked_psn_;
  if (ends_and_asks || probing_ || opens_window || since_ack_request_ >= kAckRequestEvery * 2 ||
      (again && since_ack_request_ >= kAckRequestEvery)) {
    since_ack_request_ = 0;
    return true;
  }
  // A window about to close must hear of its packets, or it would stay closed.
  const std::int32_t under_way = psn_distance(unacked_psn_, psn);
  if (under_way + 1 >= static_cast<std::int32_t>(window()) ||
      (window_.packets() < 2 * kAckRequestEvery && since_ack_request_ >= window_.packets() / 2)) {
    since_ack_request_ = 0;
    return true;
  }
  return false;
}

}  // namespace softhca
