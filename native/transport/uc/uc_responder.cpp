// What differs for an unreliable connection: no replies; a gap costs the message, not the
// connection (IBTA Vol 1, 9.8.2).

#include "transport/queue_pair.hpp"
#include "transport/responder.hpp"
#include "wire/psn.hpp"

namespace softhca {

void Responder::on_unreliable(const Packet& packet) {
  if (qp_.state() == QpState::RTR && !peer_seen_) {
    peer_seen_ = true;
    qp_.services.raise(EventType::COMM_EST, qp_.qpn);
  }
  const OpcodeInfo& info = *packet.info;
  const bool begins = info.has(kFirst | kOnly);
  const bool in_sequence = packet.bth.psn == expected_psn_;
  if (!in_sequence) {
    qp_.count(&Counters::out_of_sequence);
  }
  if (in_progress_ != InProgress::NOTHING && (begins || !in_sequence)) {
    abandon_message(WcStatus::REM_ABORT_ERR, {Reason::BAD_SEQUENCE, 0, 0, 0});
  }
  if (begins) {
    // A message that begins is taken afresh, wherever the last one stopped.
    expected_psn_ = packet.bth.psn;
  } else if (in_progress_ == InProgress::NOTHING) {
    qp_.count(&Counters::dropped_pkts, packet.psns);
    expected_psn_ = psn_add(packet.bth.psn, packet.psns);
    return;
  }
  using Check = Step (Responder::*)(const Packet&);
  static constexpr Check kChecks[] = {
      &Responder::check_sequence, &Responder::check_operation, &Responder::check_length,
      &Responder::check_access,   &Responder::check_receive,   &Responder::execute,
  };
  for (const Check check : kChecks) {
    if ((this->*check)(packet) == Step::STOP) {
      // One whose payload was not there comes again.
      expected_psn_ = psn_add(packet.bth.psn, qp_.payload_unreadable ? 0 : packet.psns);
      return;
    }
  }
  finish_packet(packet);
}

}  // namespace softhca
