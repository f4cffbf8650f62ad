// Plain acknowledgements between adapters of this host, which are most of what goes back: without
// the packet that has room for everything, as short messages are (short_message.cpp).

#include "transport/queue_pair.hpp"

namespace softhca {

bool QueuePair::next_is_acknowledge(PlainAcknowledge& packet) const {
  const bool receives =
      state() == QpState::RTS || state() == QpState::RTR || state() == QpState::SQD;
  if (init.type != QpType::RC || !receives || congestion != nullptr ||
      requester.may_have_packets() || !responder.next_is_plain(packet.psn, packet.msn)) {
    return false;
  }
  packet.migrated = migration.request_bit();
  packet.pkey = pkey;
  packet.destination_qpn = attr.dest_qp_num;
  return true;
}

void QueuePair::sent_acknowledge() {
  responder.sent_plain();
  took_turn(true);
  count(&Counters::sent_pkts);
  count(&Counters::sent_bytes, PlainAcknowledge::kWireBytes);
}

bool Responder::next_is_plain(std::uint32_t& psn, std::uint32_t& msn) const {
  if (replies_.size() != 1 || !acknowledges_next() || replies_.front().syndrome != kSyndromeAck) {
    return false;
  }
  psn = replies_.front().psn;
  msn = replies_.front().msn;
  return true;
}

void Responder::sent_plain() {
  acknowledged_psn_ = replies_.front().psn;
  replies_.pop_front();
}

bool QueuePair::admits_answer(const PlainAcknowledge& packet, const Route& from) const {
  return (state() == QpState::RTS || state() == QpState::SQD) &&
         is_plainly_from_peer(packet.pkey, from) && congestion == nullptr &&
         services.observer == nullptr && !requester.is_probing();
}

bool QueuePair::receive_acknowledge(const PlainAcknowledge& packet, const Route& from) {
  if (!admits_answer(packet, from)) return false;
  count(&Counters::rcvd_pkts);
  count(&Counters::rcvd_bytes, PlainAcknowledge::kWireBytes);
  requester.on_plain_acknowledge(packet.psn);
  return true;
}

}  // namespace softhca
