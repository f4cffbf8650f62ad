// Posting work requests: what can be refused is refused here, what the specification checks at
// execution is left alone.

#include <algorithm>

#include "transport/queue_pair.hpp"

namespace softhca {
namespace {

bool moves_nothing(WrOpcode opcode) {
  return opcode == WrOpcode::FLUSH || opcode == WrOpcode::LOCAL_INV ||
         opcode == WrOpcode::BIND_MW || opcode == WrOpcode::REG_MR;
}

bool known_opcode(WrOpcode opcode) {
  return opcode <= WrOpcode::SEND_WITH_INV || opcode == WrOpcode::REG_MR ||
         (opcode >= WrOpcode::MASKED_ATOMIC_CMP_AND_SWP && opcode <= WrOpcode::ATOMIC_WRITE);
}

// SENDs, WRITEs and READs.
bool is_plain(WrOpcode opcode) {
  return opcode <= WrOpcode::RDMA_READ || opcode == WrOpcode::SEND_WITH_INV;
}

bool may_be_inline(WrOpcode opcode) {
  return opcode == WrOpcode::SEND || opcode == WrOpcode::SEND_WITH_IMM ||
         opcode == WrOpcode::SEND_WITH_INV || opcode == WrOpcode::RDMA_WRITE ||
         opcode == WrOpcode::RDMA_WRITE_WITH_IMM || opcode == WrOpcode::ATOMIC_WRITE;
}

std::uint64_t total_length(std::span<const Sge> sges) {
  std::uint64_t length = 0;
  for (const Sge& sge : sges) length += sge.length;
  return length;
}

}  // namespace

Status QueuePair::check_post_state() const {
  if (init.type == QpType::XRC_RECV) {
    return refuse(EINVAL, "qp", qpn, "an XRC_RECV queue pair has no send queue");
  }
  if (state() == QpState::RESET || state() == QpState::INIT || state() == QpState::RTR) {
    return refuse(EINVAL, "qp_state", static_cast<std::uint64_t>(state()),
                  "post_send needs RTS (or SQD, SQE, ERR)");
  }
  return Status::success();
}

Status QueuePair::check_request(const SendWr& wr, std::uint64_t& length) const {
  constexpr std::uint32_t kKnownFlags = kSendFence | kSendSignaled | kSendSolicited | kSendInline;
  if (!known_opcode(wr.opcode)) {
    return refuse(EINVAL, "opcode", static_cast<std::uint64_t>(wr.opcode), "is no work request");
  }
  if ((wr.send_flags & ~kKnownFlags) != 0) {
    return refuse(EINVAL, "send_flags", wr.send_flags, "has bits that are no send flag");
  }
  if (wr.sges.size() > init.cap.max_send_sge) {
    return refuse(EINVAL, "num_sge", wr.sges.size(), "is above the queue pair's max_send_sge",
                  init.cap.max_send_sge);
  }
  if (moves_nothing(wr.opcode) && !wr.sges.empty()) {
    return refuse(EINVAL, "num_sge", wr.sges.size(), "must be 0: the work request moves no bytes");
  }
  length = 0;
  for (const Sge& sge : wr.sges) {
    length += sge.length;
  }
  if ((wr.send_flags & kSendInline) != 0) {
    if (!may_be_inline(wr.opcode)) {
      return refuse(EINVAL, "inline", 1, "the work request has nothing to send inline");
    }
    // An ATOMIC WRITE fetched from a queue has its eight bytes there, as part of the request.
    const bool part = wr.opcode == WrOpcode::ATOMIC_WRITE && length == 8 && sq.source() != nullptr;
    if (length > init.cap.max_inline_data && !part) {
      return refuse(EINVAL, "inline", length, "is above the queue pair's max_inline_data",
                    init.cap.max_inline_data);
    }
  }
  if (init.type == QpType::UD && wr.remote_qpn > 0xffffff) {
    return refuse(EINVAL, "remote_qpn", wr.remote_qpn, "has more than 24 bits");
  }
  if (sq.full() || init.cap.max_send_wr == 0) {
    return refuse(ENOMEM, "max_send_wr", init.cap.max_send_wr,
                  "the send queue is full; slots return when a signaled work request completes");
  }
  return Status::success();
}

Status QueuePair::post_send(const SendWr& wr, const Route& to, bool ah_ok, std::uint64_t cqe) {
  std::uint64_t length = 0;
  if (Status status = check_post_state(); !status.ok()) {
    return status;
  }
  if (Status status = check_request(wr, length); !status.ok()) {
    return status;
  }
  SendWqe& wqe = sq.next_entry();
  wqe.describe(wr, cqe, length);
  if (init.type == QpType::UD) {
    wqe.bad_address_handle = !ah_ok;
    wqe.remote_qpn = wr.remote_qpn;
    wqe.remote_qkey = wr.remote_qkey;
    wqe.route = to;
  }
  if (!is_plain(wr.opcode)) {
    wqe.compare_add = wr.compare_add;
    wqe.swap = wr.swap;
    wqe.compare_mask = wr.compare_mask;
    wqe.swap_mask = wr.swap_mask;
    wqe.flush = wr.flush;
    wqe.memory = wr.memory;
  }
  if ((wr.send_flags & kSendInline) != 0) {
    ByteSpan room = sq.inline_bytes(sq.tail());
    for (const Sge& sge : wr.sges) {
      if (!services.memory.read_inline(sge.address, room.first(sge.length))) {
        return refuse(EFAULT, "inline", sge.address, "cannot be read");
      }
      room = room.subspan(sge.length);
    }
  } else {
    wqe.sge_count = static_cast<std::uint16_t>(wr.sges.size());
    std::ranges::copy(wr.sges, sq.sge_room().begin());
  }
  sq.push();
  if (services.observer != nullptr) {
    const bool signaled = (wr.send_flags & kSendSignaled) != 0 || init.sq_sig_all;
    services.observer->posted_send(qpn, wr.wr_id, wr.opcode, length, signaled);
  }
  if (state() == QpState::ERR || state() == QpState::SQE) {
    requester.flush();
  } else if (local == nullptr || !services.send_at_once(*this)) {
    services.schedule(*this);
  }
  return Status::success();
}

Status QueuePair::check_post_recv() const {
  if (init.type == QpType::XRC_RECV || init.type == QpType::XRC_SEND) {
    return refuse(EINVAL, "qp", qpn, "an XRC queue pair has no receive queue");
  }
  if (queues.srq != nullptr) {
    return refuse(EINVAL, "qp", qpn, "the queue pair receives from a shared receive queue");
  }
  if (state() == QpState::RESET) {
    return refuse(EINVAL, "qp_state", 0, "post_recv needs INIT or a later state");
  }
  return Status::success();
}

Status QueuePair::post_recv(std::span<const RecvWr* const> wrs, std::span<const std::uint64_t> cqes,
                            std::size_t& posted) {
  if (const Status status = check_post_recv(); !status.ok()) {
    return status;
  }
  for (; posted < wrs.size(); ++posted) {
    const RecvWr& wr = *wrs[posted];
    if (wr.sges.size() > init.cap.max_recv_sge) {
      return refuse(EINVAL, "num_sge", wr.sges.size(), "is above the queue pair's max_recv_sge",
                    init.cap.max_recv_sge);
    }
    if (rq.full()) {
      return refuse(ENOMEM, "max_recv_wr", init.cap.max_recv_wr, "the receive queue is full");
    }
    rq.push(wr.wr_id, wr.sges, cqes.empty() ? 0 : cqes[posted]);
    if (services.observer != nullptr) {
      services.observer->posted_receive(qpn, wr.wr_id, total_length(wr.sges));
    }
    if (state() == QpState::ERR) {
      responder.flush();
    }
  }
  return Status::success();
}

}  // namespace softhca
