// The requester hears from the responder (IBTA Vol 1, 9.7.5.1, 9.9.2).

#include <algorithm>
#include <array>
#include <cstring>

#include "transport/queue_pair.hpp"
#include "transport/requester.hpp"
#include "wire/psn.hpp"
#include "wire/syndrome.hpp"

namespace softhca {

void Requester::on_response(const Packet& packet) {
  if (qp_.state() != QpState::RTS && qp_.state() != QpState::SQD) {
    return;
  }
  timer_.answered(qp_.peer_is_adapter);
  if (packet.info->has(kReadResponse)) {
    on_read_response(packet);
  } else if (packet.info->has(kHasAtomicAckEth)) {
    on_atomic_acknowledge(packet);
  } else {
    on_acknowledge(packet);
  }
}

// Sent and not acknowledged. What lies outside is a ghost or a duplicate, and is ignored.
bool Requester::under_way(std::uint32_t psn) const {
  return psn_distance(unacked_psn_, psn) >= 0 && psn_distance(psn, highest_psn_) > 0;
}

bool Requester::answered_request(std::uint32_t psn, std::uint64_t& wr_id) const {
  if (!under_way(psn)) return false;
  for (std::uint64_t index = qp_.sq.oldest(); index != qp_.sq.tail(); ++index) {
    const SendWqe& wqe = qp_.sq.at(index);
    if (!wqe.started) break;
    const std::int32_t number = psn_distance(wqe.first_psn, psn);
    if (number >= 0 && number < static_cast<std::int32_t>(wqe.psn_count) && !wqe.is_local()) {
      wr_id = wqe.wr_id;
      return true;
    }
  }
  return false;
}

// Perhaps nothing was lost, and the probe came too early.
void Requester::on_answered_again() {
  if (!round_trip_.is_doubtful()) return;
  timer_.measured_late(round_trip_.answered_again(qp_.services.time.now_ns()));
}

void Requester::on_acknowledge(const Packet& packet) {
  const std::uint32_t psn = packet.bth.psn;
  if (!under_way(psn)) {
    on_answered_again();
    return;
  }
  switch (syndrome_kind(packet.aeth.syndrome)) {
    case SyndromeKind::ACK: {
      const bool was_probe = probing_ && psn == unacked_psn_;
      if (!acknowledge_until(psn_add(psn, 1))) {
        response_lost();
      } else if (was_probe && qp_.state() != QpState::ERR &&
                 psn_distance(unacked_psn_, next_psn_) > 0) {
        // The peer has nothing beyond the packet that was probed: the rest was lost with it.
        go_back_to(unacked_psn_);
      }
      break;
    }
    case SyndromeKind::RNR_NAK:
      on_rnr_nak(psn, packet.aeth.syndrome & 0x1f);
      break;
    case SyndromeKind::NAK:
      on_nak(psn, static_cast<NakCode>(packet.aeth.syndrome & 0x1f));
      break;
    case SyndromeKind::RESERVED:
      on_reserved_syndrome(psn);
      break;
  }
}

// An entry may begin half of all PSNs behind what is under way, but no further: distances are taken
// from the oldest unacknowledged.
bool Requester::expected_response(std::uint32_t end_psn, std::uint64_t& index,
                                  std::uint32_t& psn) const {
  const std::int32_t end = psn_distance(unacked_psn_, end_psn);
  for (index = qp_.sq.oldest(); index != qp_.sq.tail(); ++index) {
    const SendWqe& wqe = qp_.sq.at(index);
    if (!wqe.started || psn_distance(unacked_psn_, wqe.first_psn) >= end) {
      return false;
    }
    if (wqe.is_answered()) {
      psn = psn_distance(wqe.first_psn, unacked_psn_) > 0 ? unacked_psn_ : wqe.first_psn;
      return true;
    }
  }
  return false;
}

bool Requester::acknowledge_until(std::uint32_t end_psn) {
  std::uint64_t index = 0;
  std::uint32_t owed = 0;
  // What is to be sent again is no longer among the READs under way.
  const bool may_owe = !reads_.empty() || next_psn_ != highest_psn_;
  const bool skips =
      may_owe && expected_response(end_psn, index, owed) && psn_distance(owed, end_psn) > 0;
  progress(skips ? owed : end_psn);
  return !skips;
}

void Requester::progress(std::uint32_t unacked_psn) {
  const std::int32_t moved = psn_distance(unacked_psn_, unacked_psn);
  if (moved <= 0) {
    return;
  }
  CallTime& time = qp_.services.time;
  unacked_psn_ = unacked_psn;
  retries_left_ = qp_.attr.retry_cnt;
  rnr_retries_left_ = qp_.attr.rnr_retry;
  went_back_ = probing_ = probe_wanted_ = false;
  // Whatever moves on is no longer waiting for a receive at the peer.
  waiting_rnr_ = false;
  rnr_deadline_ns_ = kNever;
  window_.on_acknowledged(static_cast<std::uint32_t>(moved));
  if (in_loss_ && psn_distance(loss_until_psn_, unacked_psn) >= 0) {
    in_loss_ = false;
  }
  if (round_trip_.is_timing()) {
    timer_.measured(round_trip_.acknowledged(unacked_psn, time.now_ns()));
  }
  while (!reads_.empty() && psn_distance(reads_.front().end_psn, unacked_psn) >= 0) {
    reads_.pop_front();
  }
  while (!qp_.sq.empty()) {
    const SendWqe& oldest = qp_.sq.at(qp_.sq.oldest());
    if (!oldest.started ||
        psn_distance(psn_add(oldest.first_psn, oldest.psn_count), unacked_psn) < 0) {
      break;
    }
    qp_.complete_send(WcStatus::SUCCESS, {}, false);
  }
  if (failure_.set && failure_.index < qp_.sq.oldest()) {
    // It failed only at being repeated, which turned out not to be needed.
    failure_ = {};
  }
  if (psn_distance(next_psn_, unacked_psn) > 0) {
    set_position(unacked_psn);
  }
  if (unacked_psn_ == highest_psn_) {
    timer_.stop();
  } else {
    timer_.restart(time.late_ns());
  }
  if (may_have_packets()) {
    qp_.services.schedule(qp_);
  }
  settle_failure();
  qp_.check_drained();
}

// The peer has just said what it lacks: what goes again has the whole time-out to be answered.
void Requester::repeat_answered(std::uint32_t psn) {
  timer_.restart(qp_.services.time.now_ns());
  went_back_ = true;
  go_back_to(psn);
}

// What the peer lacks goes again without more words. One per gap counts; its duplicates would only
// make a storm. And what is about to leave, after a time-out or when the peer is ready for it, was
// missed in what was sent behind it before, as Linux's rxe does with what it has just refused.
bool Requester::repeats_already() const { return went_back_ || next_psn_ == unacked_psn_; }

// A response was skipped over, so it was lost: ask for it again.
void Requester::response_lost() {
  if (repeats_already() || qp_.state() == QpState::ERR) {
    return;
  }
  qp_.count(&Counters::implied_nak_seq_err);
  if (may_retry()) {
    repeat_answered(unacked_psn_);
  }
}

// True if this response is the one that is due; `index` is of its work request. A later one implies
// everything before it, but not the responses that are missing.
bool Requester::take_response(std::uint32_t psn, std::uint64_t& index) {
  std::uint32_t owed = 0;
  if (!under_way(psn)) {
    return false;
  }
  if (!expected_response(highest_psn_, index, owed) || psn_distance(owed, psn) < 0) {
    refuse_response(psn);
    return false;
  }
  if (psn != owed) {
    progress(owed);
    response_lost();
    return false;
  }
  progress(owed);
  return qp_.state() == QpState::RTS || qp_.state() == QpState::SQD;
}

// A READ or atomic response where an acknowledgement was due: an unexpected opcode (IBTA Vol
// 1, 9.9.2). It still says that what is before it has arrived.
void Requester::refuse_response(std::uint32_t psn) {
  progress(psn);
  if (qp_.state() == QpState::RTS || qp_.state() == QpState::SQD) {
    fail(qp_.sq.oldest(), WcStatus::BAD_RESP_ERR, {Reason::BAD_RESPONSE, 0, 0, 0}, true);
  }
}

// Where a request was repeated from its middle, an answer may begin there, or be the rest of the
// first one; Linux's rxe sends the rest whatever it was asked for.
bool Requester::is_in_order(const Packet& packet, const SendWqe& wqe, std::uint32_t number) {
  const std::uint32_t end = number + packet.psns;
  const bool ends_request = end == wqe.psn_count || end % wqe.read_chunk == 0;
  const bool begins = packet.info->has(kFirst | kOnly);
  const bool may_begin = number % wqe.read_chunk == 0 ? begins : !begins || wqe.asked_inside;
  return may_begin && packet.info->has(kLast | kOnly) == ends_request;
}

void Requester::on_read_response(const Packet& packet) {
  const std::uint32_t psn = packet.bth.psn;
  std::uint64_t index = 0;
  if (!take_response(psn, index)) {
    return;
  }
  const SendWqe& wqe = qp_.sq.at(index);
  const auto bad_response = [&] {
    fail(index, WcStatus::BAD_RESP_ERR, {Reason::BAD_RESPONSE, wqe.rkey, 0, packet.payload.size()},
         true);
  };
  if (wqe.is_confirmed()) {
    if (!packet.info->has(kOnly) || !packet.payload.empty() ||
        syndrome_kind(packet.aeth.syndrome) != SyndromeKind::ACK) {
      bad_response();
      return;
    }
    progress(psn_add(psn, 1));
    return;
  }
  if (!wqe.is_read()) {
    bad_response();
    return;
  }
  const std::uint32_t number = static_cast<std::uint32_t>(psn_distance(wqe.first_psn, psn));
  const std::uint64_t offset = std::uint64_t{number} * qp_.mtu();
  const std::uint32_t end = number + packet.psns;
  const std::uint64_t due = std::min(std::uint64_t{packet.psns} * qp_.mtu(), wqe.length - offset);
  if (packet.payload_bytes() != due || end > wqe.psn_count ||
      psn_distance(psn_add(psn, packet.psns), highest_psn_) < 0 ||
      !is_in_order(packet, wqe, number) ||
      (packet.info->has(kHasAeth) && syndrome_kind(packet.aeth.syndrome) != SyndromeKind::ACK)) {
    bad_response();
    return;
  }
  MemoryTable& memory = qp_.services.memory;
  part_.goes_on = packet.info->has(kFirst | kMiddle);
  if (packet.info->has(kFirst | kOnly)) {
    memory.write_behind.flush();
    part_.lost = false;
  }
  const AccessFault fault =
      memory.scatter(qp_.init.pd, qp_.sq.sges(index), offset, payload_of(packet), &part_);
  if (fault.payload_gone) {
    qp_.payload_unreadable = true;
    return;
  }
  if (!fault.ok()) {
    fail(index, WcStatus::LOC_PROT_ERR, fault, false);
    return;
  }
  progress(psn_add(psn, packet.psns));
}

void Requester::on_atomic_acknowledge(const Packet& packet) {
  const std::uint32_t psn = packet.bth.psn;
  std::uint64_t index = 0;
  if (!take_response(psn, index)) {
    return;
  }
  const SendWqe& wqe = qp_.sq.at(index);
  if (!wqe.is_atomic() || syndrome_kind(packet.aeth.syndrome) != SyndromeKind::ACK) {
    fail(index, WcStatus::BAD_RESP_ERR, {Reason::BAD_RESPONSE, wqe.rkey, 0, 0}, true);
    return;
  }
  // The wire has a big-endian integer; memory gets it in host order (IBTA Vol 1, 9.4.5).
  std::array<std::uint8_t, 8> original;
  std::memcpy(original.data(), &packet.atomic_original, original.size());
  const AccessFault fault =
      qp_.services.memory.scatter(qp_.init.pd, qp_.sq.sges(index), 0, ByteView(original));
  if (!fault.ok()) {
    fail(index, WcStatus::LOC_PROT_ERR, fault, false);
    return;
  }
  progress(psn_add(psn, 1));
}

// What any NAK says: everything before `psn` has arrived. False: there is nothing left that it
// could be about, since that has ended the queue pair's work, or the answer to something earlier is
// missing.
bool Requester::acknowledge_before(std::uint32_t psn) {
  const bool all_answered = acknowledge_until(psn);
  if (qp_.state() != QpState::RTS && qp_.state() != QpState::SQD) {
    return false;
  }
  if (!all_answered) {
    response_lost();
  }
  return all_answered;
}

void Requester::on_sequence_nak(std::uint32_t psn) {
  if (!acknowledge_before(psn)) {
    return;
  }
  if (psn == unacked_psn_ && !repeats_already()) {
    qp_.count(&Counters::packet_seq_err);
    round_trip_.forget();
    if (may_retry()) {
      repeat_answered(psn);
    }
  }
}

void Requester::on_rnr_nak(std::uint32_t psn, std::uint8_t timer_code) {
  if (waiting_rnr_) {
    return;
  }
  if (!acknowledge_before(psn)) {
    return;
  }
  qp_.count(&Counters::rcvd_rnr_err);
  if (qp_.attr.rnr_retry != 7) {
    if (rnr_retries_left_ == 0) {
      qp_.count(&Counters::rnr_nak_retry_err);
      fail(qp_.sq.oldest(), WcStatus::RNR_RETRY_EXC_ERR, {Reason::RNR_EXHAUSTED, 0, 0, 0}, true);
      return;
    }
    --rnr_retries_left_;
  }
  waiting_rnr_ = true;
  rnr_deadline_ns_ = qp_.services.time.now_ns() + rnr_delay_ns(timer_code);
  timer_.stop();
  set_position(psn);
  round_trip_.stop();
  probing_ = probe_wanted_ = false;
  qp_.services.schedule(qp_);
}

void Requester::on_nak(std::uint32_t psn, NakCode code) {
  switch (code) {
    case NakCode::PSN_SEQUENCE_ERROR:
      on_sequence_nak(psn);
      break;
    case NakCode::INVALID_RD_REQUEST:
      on_reserved_syndrome(psn);  // To reliable datagrams alone it means anything.
      break;
    default:
      on_fatal_nak(psn, code);
      break;
  }
}

void Requester::on_fatal_nak(std::uint32_t psn, NakCode code) {
  if (!acknowledge_before(psn)) {
    return;
  }
  const SendWqe& wqe = qp_.sq.at(qp_.sq.oldest());
  AccessFault fault{Reason::NAK_INVALID_REQUEST, wqe.rkey, wqe.remote_address, wqe.length};
  WcStatus status = WcStatus::REM_INV_REQ_ERR;
  if (code == NakCode::REMOTE_ACCESS_ERROR) {
    qp_.count(&Counters::req_remote_access_errors);
    status = WcStatus::REM_ACCESS_ERR;
    fault.reason = Reason::NAK_ACCESS;
  } else if (code == NakCode::REMOTE_OPERATIONAL_ERROR) {
    status = WcStatus::REM_OP_ERR;
    fault.reason = Reason::NAK_OPERATIONAL;
  } else {
    qp_.count(&Counters::req_remote_invalid_request);
  }
  fail(qp_.sq.oldest(), status, fault, true);
}

// Neither an acknowledgement nor a refusal that anybody knows, and no reason to ask again: the peer
// would say it again. Whatever it means, it is about this packet, as a NAK is.
void Requester::on_reserved_syndrome(std::uint32_t psn) {
  if (!acknowledge_before(psn)) {
    return;
  }
  const std::uint64_t oldest = qp_.sq.oldest();
  const AccessFault fault{Reason::BAD_RESPONSE, qp_.sq.at(oldest).rkey, 0, 0};
  fail(oldest, WcStatus::BAD_RESP_ERR, fault, true);
}

}  // namespace softhca
