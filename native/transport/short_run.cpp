// Short messages to another adapter of this host: each is posted, described and written in a few
// steps, and what none of a list changes is looked at once. (short_message.cpp has those within an
// adapter, over the wire, and from mapped queues.)

#include <algorithm>

#include "memory/plain_access.hpp"
#include "transport/queue_pair.hpp"
#include "transport/short_request.hpp"
#include "wire/psn.hpp"

namespace softhca {
namespace {

// What can be refused when it is posted is left to who refuses it.
bool is_simple(const SendWr& wr) {
  constexpr std::uint32_t kFlags = kSendFence | kSendSignaled | kSendSolicited | kSendInline;
  return may_be_short(wr.opcode) && (wr.send_flags & ~kFlags) == 0 && wr.sges.size() == 1 &&
         wr.refused == Reason::NONE;
}

// Of a list of them, which may have none.
std::uint64_t cqe_of(std::span<const std::uint64_t> cqes, std::size_t index) {
  return cqes.empty() ? 0 : cqes[index];
}

}  // namespace

struct Requester::ShortRun {
  PlainAccess memory;
  std::uint32_t most_bytes;
  bool asks_always;
  std::uint32_t since_ack_request = 0;
  std::size_t count = 0;  // Of packets.
};

// Everything posted before has left, and nothing has to be sent again.
bool Requester::all_has_left() const {
  return qp_.init.type == QpType::RC && qp_.state() == QpState::RTS && current_ == qp_.sq.tail() &&
         next_psn_ == highest_psn_ && !waiting_rnr_ && !probe_wanted_ && !failure_.set;
}

std::int32_t Requester::window_left() const {
  return static_cast<std::int32_t>(window()) - psn_distance(unacked_psn_, next_psn_);
}

// The bytes of the request that is posted next, where its entry keeps them; null: they cannot be
// had, or are too many.
const std::uint8_t* Requester::copy_inline(const Sge& sge) {
  if (sge.length > qp_.init.cap.max_inline_data) return nullptr;
  const ByteSpan room = qp_.sq.inline_bytes(qp_.sq.tail()).first(sge.length);
  return qp_.services.memory.read_inline(sge.address, room) ? room.data() : nullptr;
}

// Posts it, as one that has left. False: it is no short one, and not posted.
[[gnu::always_inline]] inline bool Requester::add_to_run(const SendWr& wr, std::uint64_t cqe,
                                                         ShortRun& run) {
  if (!is_simple(wr) || qp_.sq.full()) return false;
  const Sge& sge = wr.sges[0];
  if (sge.length > run.most_bytes) return false;
  SendWqe& wqe = qp_.sq.next_entry();
  wqe.describe(wr, cqe, sge.length);
  const std::uint8_t* const from = wqe.is_inline() ? copy_inline(sge) : run.memory.at(sge);
  if (from == nullptr) return false;
  const std::uint32_t psn = psn_add(next_psn_, static_cast<std::uint32_t>(run.count));
  qp_.sq.push_started(sge, psn, 1);
  ShortPacket& packet = qp_.services.run[run.count++];
  describe_short(qp_, wqe, packet);
  packet.payload = {from, sge.length};
  packet.psn = psn;
  packet.ack_request =
      run.asks_always || wqe.signaled() || run.since_ack_request + 1 >= kAckRequestEvery;
  run.since_ack_request = packet.ack_request ? 0 : run.since_ack_request + 1;
  return true;
}

// What does not leave now has its turn later.
void Requester::send_run(ShortRun& run) {
  const std::span<const ShortPacket> packets = std::span(qp_.services.run).first(run.count);
  const std::size_t sent = qp_.local->send_short(packets);
  std::size_t bytes = 0;
  for (const ShortPacket& packet : packets.first(sent)) {
    bytes += packet.wire_bytes();
    since_ack_request_ = packet.ack_request ? 0 : since_ack_request_ + 1;
  }
  for (std::size_t i = sent; i < run.count; ++i) qp_.sq.at(current_ + i).started = false;
  current_ += sent;
  next_psn_ = highest_psn_ = psn_add(next_psn_, static_cast<std::uint32_t>(sent));
  qp_.count(&Counters::sent_pkts, sent);
  qp_.count(&Counters::sent_bytes, bytes);
  if (sent > 0) {
    await_acknowledgement();
    qp_.took_turn(false);
  }
  if (sent < run.count) qp_.services.schedule(qp_);
}

// A message that is too long to be copied: its bytes stay where they are until the peer fetches
// them.
bool Requester::lend_next(const SendWr& wr, std::uint64_t cqe, ShortRun& run) {
  if (!is_simple(wr) || (wr.send_flags & kSendInline) != 0 || !reads_.empty() || qp_.sq.full()) {
    return false;
  }
  const Sge& sge = wr.sges[0];
  if (sge.length <= kLocalCopiedBytes || sge.length > kLocalPacketBytes || qp_.copies_payload ||
      window_left() <= 0) {
    return false;
  }
  const std::uint8_t* const from = run.memory.at(sge);
  if (from == nullptr) return false;
  SendWqe& wqe = qp_.sq.next_entry();
  wqe.describe(wr, cqe, sge.length);
  ShortPacket packet;
  describe_short(qp_, wqe, packet);
  packet.payload = {from, sge.length};
  packet.psn = next_psn_;
  packet.psns = (sge.length + qp_.mtu() - 1) / qp_.mtu();
  packet.ack_request = packet.psns > 1 || asks_at_its_end(wqe);
  if (!qp_.local->lend(packet, qp_.qpn, sge.lkey)) return false;
  qp_.sq.push_started(sge, packet.psn, packet.psns);
  left_alone(packet, packet.psns);
  return true;
}

// The request pushed last has left as this packet, and takes so many PSNs.
void Requester::left_alone(const ShortPacket& packet, std::uint32_t psns) {
  ++current_;
  next_psn_ = highest_psn_ = psn_add(next_psn_, psns);
  since_ack_request_ = packet.ack_request ? 0 : since_ack_request_ + 1;
  qp_.count(&Counters::sent_pkts, packet.psns);
  qp_.count(&Counters::sent_bytes, packet.wire_bytes());
  await_acknowledgement();
  qp_.took_turn(false);
}

std::size_t Requester::post_short(std::span<const SendWr* const> wrs,
                                  std::span<const std::uint64_t> cqes) {
  if (qp_.init.cap.max_send_sge == 0 || qp_.init.cap.max_send_wr == 0 || !all_has_left()) return 0;
  ShortRun run{.memory = {qp_.services.memory, qp_.init.pd, 0},
               .most_bytes = std::min(qp_.mtu(), kLocalCopiedBytes),
               .asks_always = qp_.init.sq_sig_all || !qp_.services.lazy_acks};
  std::size_t posted = 0;
  while (posted < wrs.size() && current_ == qp_.sq.tail()) {
    const std::size_t left = static_cast<std::size_t>(std::max(window_left(), 0));
    const std::size_t most = std::min({Services::kRunPackets, wrs.size() - posted, left});
    run.count = 0;
    run.since_ack_request = since_ack_request_;
    while (reads_.empty() && run.count < most &&
           add_to_run(*wrs[posted], cqe_of(cqes, posted), run)) {
      ++posted;
    }
    if (run.count > 0) {
      send_run(run);
    } else if (lend_next(*wrs[posted], cqe_of(cqes, posted), run) ||
               ask_next(*wrs[posted], cqe_of(cqes, posted))) {
      ++posted;
    } else {
      break;
    }
  }
  return posted;
}

}  // namespace softhca
