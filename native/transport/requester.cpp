#include "transport/requester.hpp"

#include <algorithm>
#include <cstring>

#include "transport/queue_pair.hpp"
#include "wire/psn.hpp"

namespace softhca {
namespace {

// Longest message (IBTA Vol 1, 9.4.1).
constexpr std::uint64_t kMaxMessageBytes = std::uint64_t{1} << 31;
// A READ is asked for in pieces of this size, so that what it brings fits into a socket's buffer.
constexpr std::uint32_t kReadChunkBytes = 128 * 1024;
constexpr std::uint32_t kReadChunkPackets = 128;
// By a program that plays a peer it is asked for as a whole, up to here, until something was lost.
constexpr std::uint32_t kProgramReadPackets = 1024;
// Of small messages more fit into a socket's buffer, and it takes more to keep both sides busy.
constexpr std::uint64_t kSmallBytes = 256;
constexpr std::uint32_t kSmallForOne = 2;
// Nothing is lost on the way to an adapter of this host: only the locked time is bounded.
constexpr std::uint32_t kLocalReadChunkBytes = 1u << 20;
constexpr std::uint32_t kLocalWindowBytes = 4u << 20;

bool legal_opcode(QpType type, WrOpcode opcode) {
  switch (opcode) {
    case WrOpcode::SEND:
    case WrOpcode::SEND_WITH_IMM:
      return true;
    case WrOpcode::RDMA_WRITE:
    case WrOpcode::RDMA_WRITE_WITH_IMM:
      return type != QpType::UD;
    case WrOpcode::RDMA_READ:
    case WrOpcode::ATOMIC_CMP_AND_SWP:
    case WrOpcode::ATOMIC_FETCH_AND_ADD:
    case WrOpcode::SEND_WITH_INV:
    case WrOpcode::MASKED_ATOMIC_CMP_AND_SWP:
    case WrOpcode::MASKED_ATOMIC_FETCH_AND_ADD:
    case WrOpcode::FLUSH:
    case WrOpcode::ATOMIC_WRITE:
      return type == QpType::RC || type == QpType::XRC_SEND;
    case WrOpcode::LOCAL_INV:
    case WrOpcode::BIND_MW:
    case WrOpcode::REG_MR:
      return type != QpType::UD;
    default:
      return false;
  }
}

}  // namespace

void Requester::reset() {
  current_ = 0;
  current_packet_ = 0;
  next_psn_ = unacked_psn_ = highest_psn_ = 0;
  reads_.clear();
  failure_ = {};
  timer_.reset();
  window_.reset();
  since_ack_request_ = 0;
  waiting_rnr_ = false;
  rnr_deadline_ns_ = kNever;
  probe_wanted_ = probing_ = went_back_ = in_loss_ = false;
  round_trip_ = {};
}

void Requester::start() {
  next_psn_ = unacked_psn_ = highest_psn_ = qp_.attr.sq_psn;
  configure();
}

void Requester::configure() {
  timer_.configure(qp_.attr.timeout, qp_.services.retry_early && qp_.local == nullptr);
  retries_left_ = qp_.attr.retry_cnt;
  rnr_retries_left_ = qp_.attr.rnr_retry;
  if (timer_.running()) {
    timer_.restart(qp_.services.time.now_ns());
  }
}

// --- choosing and sending
// -----------------------------------------------------------------------------------------

bool Requester::next_packet(Outlet& out) {
  if (qp_.state() != QpState::RTS && qp_.state() != QpState::SQD) {
    return false;
  }
  if (!qp_.is_reliable()) {
    return send_unreliable(out);
  }
  if (waiting_rnr_) {
    return false;
  }
  if (out.wire != nullptr && send_plainly(out)) {
    return true;
  }
  std::uint32_t psns = 0;
  if (probe_wanted_) {
    probe_wanted_ = false;
    std::uint64_t index = qp_.sq.oldest();
    while (index != qp_.sq.tail() && qp_.sq.at(index).started) {
      const SendWqe& wqe = qp_.sq.at(index);
      const std::int32_t into = psn_distance(wqe.first_psn, unacked_psn_);
      if (into >= 0 && static_cast<std::uint32_t>(into) < wqe.psn_count) {
        return send_at(index, static_cast<std::uint32_t>(into), true, out, psns);
      }
      ++index;
    }
  }
  run_local_work();
  if (!may_send_next()) {
    return false;
  }
  const std::uint64_t index = current_;
  const bool again = psn_distance(next_psn_, highest_psn_) > 0;
  if (!send_at(index, current_packet_, again, out, psns)) {
    return false;
  }
  const std::uint32_t first = next_psn_;
  next_psn_ = psn_add(next_psn_, psns);
  if (psn_distance(highest_psn_, next_psn_) > 0) {
    highest_psn_ = next_psn_;
  }
  const SendWqe& wqe = qp_.sq.at(index);
  if (wqe.is_answered()) {
    reads_.push_back({first, next_psn_, wqe.is_read()});
  }
  current_packet_ += psns;
  if (current_packet_ >= wqe.psn_count) {
    ++current_;
    current_packet_ = 0;
  }
  return true;
}

// The next packet in order may leave now; begins its entry if it is the first.
bool Requester::may_send_next() {
  if (current_ == qp_.sq.tail() || qp_.sq.at(current_).is_local() ||
      (failure_.set && current_ >= failure_.index)) {
    return false;
  }
  SendWqe& wqe = qp_.sq.at(current_);
  const std::int32_t under_way = psn_distance(unacked_psn_, next_psn_);
  if (under_way >= static_cast<std::int32_t>(window())) {
    return false;
  }
  // One that has begun goes on, though SQD may have lowered the limit to zero since.
  const std::size_t reads_allowed = std::max<std::size_t>(qp_.attr.max_rd_atomic, 1);
  if (wqe.is_answered() && reads_.size() >= reads_allowed) {
    return false;
  }
  // Begun only when its packet leaves: what had to wait until SQD waits on (IBTA Vol 1, 10.3.1.5).
  if (wqe.started) {
    return true;
  }
  const bool waits = qp_.state() == QpState::SQD || (wqe.fence() && !reads_.empty());
  return !waits && !waits_for_reads(wqe) && begin(wqe);
}

// An atomic must not change what a READ before it sees. The responder minds that until the answer
// has left; but what a neighbour lends is read when it is fetched.
bool Requester::waits_for_reads(const SendWqe& wqe) const {
  return (wqe.is_atomic() || wqe.is_confirmed()) && qp_.local != nullptr &&
         !qp_.local->delivers_at_once() && std::ranges::any_of(reads_, &ReadInFlight::is_read);
}

std::uint32_t Requester::window() const {
  if (qp_.local != nullptr) {
    return mtus_in(kLocalWindowBytes, qp_.attr.path_mtu);
  }
  const bool is_small = current_ != qp_.sq.tail() && qp_.sq.at(current_).length <= kSmallBytes;
  return is_small ? window_.packets() * kSmallForOne : window_.packets();
}

// Checks what is checked when a work request starts, and gives it its PSNs. False: it failed.
bool Requester::begin(SendWqe& wqe) {
  const auto refuse_start = [&](WcStatus status, Reason reason) {
    fail(current_, status, {reason, 0, 0, wqe.length}, false);
    return false;
  };
  if (wqe.refused != Reason::NONE) {
    return refuse_start(WcStatus::LOC_QP_OP_ERR, wqe.refused);
  }
  if (!legal_opcode(qp_.init.type, wqe.opcode)) {
    return refuse_start(WcStatus::LOC_QP_OP_ERR, Reason::UNSUPPORTED);
  }
  if (wqe.length > kMaxMessageBytes) {
    return refuse_start(WcStatus::LOC_LEN_ERR, Reason::TOO_LONG);
  }
  const bool answered = wqe.is_answered();
  if (answered && qp_.attr.max_rd_atomic == 0) {
    return refuse_start(WcStatus::LOC_QP_OP_ERR, Reason::TOO_MANY_READS);
  }
  if (wqe.is_atomic() && wqe.length < 8) {
    return refuse_start(WcStatus::LOC_LEN_ERR, Reason::ATOMIC_LENGTH);
  }
  if (wqe.opcode == WrOpcode::ATOMIC_WRITE && wqe.length != 8) {
    return refuse_start(WcStatus::LOC_LEN_ERR, Reason::ATOMIC_LENGTH);
  }
  const bool lands = wqe.is_read() || wqe.is_atomic();
  if (!lands && !wqe.is_inline()) {
    const AccessFault fault = qp_.services.memory.check_list(qp_.init.pd, qp_.sq.sges(current_), 0);
    if (!fault.ok()) {
      fail(current_, WcStatus::LOC_PROT_ERR, fault, false);
      return false;
    }
  }
  wqe.started = true;
  wqe.first_psn = next_psn_;
  wqe.psn_count = 1;
  if (!wqe.is_atomic() && wqe.length > qp_.mtu()) {
    wqe.psn_count = static_cast<std::uint32_t>((wqe.length + qp_.mtu() - 1) / qp_.mtu());
  }
  wqe.asked_inside = false;
  wqe.read_chunk = wqe.is_read() ? read_chunk() : 1;
  return true;
}

// Packets of a READ that one request asks for.
std::uint32_t Requester::read_chunk() const {
  if (qp_.local != nullptr) {
    return std::max<std::uint32_t>(kLocalReadChunkBytes / qp_.mtu(), 1);
  }
  if (qp_.peer_is_program() && !window_.has_lost()) {
    return kProgramReadPackets;
  }
  return std::min(kReadChunkBytes / qp_.mtu(), kReadChunkPackets);
}

bool Requester::send_at(std::uint64_t index, std::uint32_t packet_number, bool again, Outlet& out,
                        std::uint32_t& psns) {
  const SendWqe& wqe = qp_.sq.at(index);
  Plan planned = plan(wqe, packet_number, out.most_packets(qp_.mtu()));
  const bool filled = out.local == nullptr ? fill_wire(index, planned, again, out)
                                           : fill_local(index, planned, packet_number, out);
  if (!filled) {
    return false;
  }
  if (out.wire != nullptr) {
    out.wire->has_wr = true;
    out.wire->wr_id = wqe.wr_id;
    out.wire->retransmitted = again;
  }
  psns = planned.psns;
  if (again) {
    // A READ takes the PSNs of its answer, but is one packet.
    qp_.count(&Counters::retransmitted_pkts, wqe.is_read() ? 1 : psns);
    note_repeat(index, packet_number);
  }
  if (qp_.is_reliable()) {
    after_send(planned.packet.bth.psn, planned.psns, planned.packet.bth.ack_request, again);
  }
  return true;
}

void Requester::note_repeat(std::uint64_t index, std::uint32_t packet_number) {
  SendWqe& wqe = qp_.sq.at(index);
  if (wqe.is_read() && packet_number % wqe.read_chunk != 0) wqe.asked_inside = true;
}

void Requester::after_send(std::uint32_t psn, std::uint32_t psns, bool ack_request, bool again) {
  // Nothing is lost on its way inside a host: how long it takes need not be known, nor what time it
  // is.
  if (qp_.local != nullptr) {
    await_acknowledgement();
    return;
  }
  const std::uint64_t now_ns = qp_.services.time.now_ns();
  if (!timer_.running()) {
    timer_.restart(now_ns);
  }
  if (!round_trip_.is_timing() && !again && ack_request) {
    round_trip_.begin(psn_add(psn, psns - 1), now_ns);
  }
}

// UC and UD: a packet that has left is done. To an adapter of this host it has left when the path
// has it, for its payload may still lie where the user has it.
bool Requester::send_unreliable(Outlet& out) {
  run_local_work();
  while (current_ != qp_.sq.tail() && !qp_.sq.at(current_).is_local()) {
    SendWqe& wqe = qp_.sq.at(current_);
    if (!wqe.started) {
      if (qp_.state() == QpState::SQD) {
        return false;
      }
      if (qp_.init.type == QpType::UD && wqe.length > qp_.mtu()) {
        fail(current_, WcStatus::LOC_LEN_ERR, {Reason::TOO_LONG, 0, 0, wqe.length}, false);
        return false;
      }
      if (wqe.bad_address_handle) {
        fail(current_, WcStatus::LOC_QP_OP_ERR, {Reason::BAD_ADDRESS_HANDLE, 0, 0, 0}, false);
        return false;
      }
      if (!begin(wqe)) {
        return false;
      }
    }
    std::uint32_t psns = 0;
    if (!send_at(current_, current_packet_, false, out, psns)) {
      return false;
    }
    next_psn_ = highest_psn_ = unacked_psn_ = psn_add(next_psn_, psns);
    current_packet_ += psns;
    if (current_packet_ == wqe.psn_count) {
      ++current_;
      current_packet_ = 0;
    }
    if (out.wire != nullptr) {
      complete_unreliable();
    }
    return true;
  }
  return false;
}

void Requester::complete_unreliable() {
  while (qp_.sq.oldest() != current_) {
    qp_.complete_send(WcStatus::SUCCESS, {}, false);
    qp_.check_drained();
  }
}

// --- going back
// -------------------------------------------------------------------------------------------------------

// Makes `psn`, which is unacknowledged or the next new one, the next to be sent.
void Requester::set_position(std::uint32_t psn) {
  next_psn_ = psn;
  current_packet_ = 0;
  for (current_ = qp_.sq.oldest(); current_ != qp_.sq.tail(); ++current_) {
    const SendWqe& wqe = qp_.sq.at(current_);
    if (!wqe.started) {
      break;
    }
    const std::int32_t into = psn_distance(wqe.first_psn, psn);
    if (into < static_cast<std::int32_t>(wqe.psn_count)) {
      current_packet_ = into > 0 ? static_cast<std::uint32_t>(into) : 0;
      break;
    }
  }
  while (!reads_.empty() && psn_distance(reads_.back().end_psn, psn) < 0) {
    reads_.pop_back();
  }
}

void Requester::go_back_to(std::uint32_t psn) {
  set_position(psn);
  round_trip_.stop();
  probing_ = false;
  since_ack_request_ = 0;
  if (!in_loss_) {
    window_.on_loss();
    in_loss_ = true;
    loss_until_psn_ = highest_psn_;
  }
  // Where losses are frequent, the first packet of a retry goes twice: if it were lost again,
  // nobody would say so, since the responder has sent its one NAK for this gap.
  probe_wanted_ = window_.smallest();
  qp_.services.schedule(qp_);
}

// Spends one of retry_cnt on a time-out, or on a sequence error that the peer reports or implies
// (IBTA Vol 1, 9.9.2). False: none was left, and what is oldest has failed.
bool Requester::may_retry() {
  if (retries_left_ > 0) {
    --retries_left_;
    return true;
  }
  if (qp_.migration.escape()) {
    return true;
  }
  qp_.count(&Counters::retry_exceeded_err);
  fail(qp_.sq.oldest(), WcStatus::RETRY_EXC_ERR, {Reason::RETRIES_EXHAUSTED, 0, 0, 0}, false);
  return false;
}

void Requester::repeat_from(std::uint32_t psn) {
  if (qp_.state() != QpState::RTS && qp_.state() != QpState::SQD) {
    return;
  }
  if (!qp_.is_reliable()) {
    set_position(psn);
    highest_psn_ = unacked_psn_ = psn;
  } else if (under_way(psn)) {
    went_back_ = true;  // The NAKs of what was behind it say nothing new.
    go_back_to(psn);
  }
}

// --- time
// ----------------------------------------------------------------------------------------------------------------

std::uint64_t Requester::deadline_ns() const {
  return waiting_rnr_ ? rnr_deadline_ns_ : timer_.deadline_ns();
}

void Requester::advance() {
  const std::uint64_t now_ns = qp_.services.time.now_ns();
  if (waiting_rnr_) {
    if (now_ns >= rnr_deadline_ns_) {
      waiting_rnr_ = false;
      rnr_deadline_ns_ = kNever;
      qp_.services.schedule(qp_);
    }
    return;
  }
  if (!timer_.running()) {
    return;
  }
  if (timer_.ack_due(now_ns)) {
    // While this process did not run, nobody took in what the peer had sent in time.
    if (qp_.services.unread && timer_.put_off(now_ns)) return;
    qp_.count(&Counters::local_ack_timeout_err);
    round_trip_.forget();
    if (may_retry()) {
      timer_.restart(now_ns);
      // Of what goes again now the first may be lost once more, and the peer says so for the first
      // time. The last retry is waited for: a NAK may be about what was sent before.
      went_back_ = retries_left_ == 0;
      go_back_to(unacked_psn_);
    }
  } else if (timer_.probe_due(now_ns)) {
    qp_.count(&Counters::early_retransmits);
    timer_.after_probe(now_ns);
    probe_wanted_ = probing_ = true;
    round_trip_.probed(now_ns);
    qp_.services.schedule(qp_);
  }
}

// --- failing
// -----------------------------------------------------------------------------------------------------------

// Entry `index` has failed. Errors do not overtake: what is before it completes first.
void Requester::fail(std::uint64_t index, WcStatus status, const AccessFault& fault, bool by_peer) {
  if (failure_.set && failure_.index <= index) {
    return;
  }
  failure_ = {true, index, status, fault, by_peer};
  settle_failure();
}

void Requester::settle_failure() {
  if (!failure_.set || qp_.sq.oldest() != failure_.index) {
    return;
  }
  const Failure failure = failure_;
  failure_ = {};
  timer_.stop();
  waiting_rnr_ = false;
  qp_.complete_send(failure.status, failure.fault, failure.by_peer);
  qp_.requester_failed();
}

void Requester::flush() {
  timer_.stop();
  waiting_rnr_ = false;
  rnr_deadline_ns_ = kNever;
  probe_wanted_ = false;
  failure_ = {};
  reads_.clear();
  while (!qp_.sq.empty()) {
    qp_.complete_send(WcStatus::WR_FLUSH_ERR, {Reason::FLUSHED, 0, 0, 0}, false);
  }
  current_ = qp_.sq.oldest();
  current_packet_ = 0;
}

bool Requester::may_have_packets() const { return probe_wanted_ || current_ != qp_.sq.tail(); }

bool Requester::drained() const { return qp_.sq.empty() || !qp_.sq.at(qp_.sq.oldest()).started; }

}  // namespace softhca
