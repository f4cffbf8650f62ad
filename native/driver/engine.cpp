#include "driver/engine.hpp"

#include <algorithm>
#include <new>
#include <type_traits>
#include <utility>

#include "driver/clock.hpp"

namespace softhca {
namespace {

// A datagram that nothing overtakes is let go after this time: reordered, not lost.
constexpr std::uint64_t kHoldNs = 1'000'000;
// A round fills no more than about what one train takes: what is filled long before it is sent has
// left the nearest caches by then, and the peer has waited for it.
constexpr std::size_t kFilledBytes = 60'000;
// A capture can be read this long after the last packet at the latest.
constexpr std::uint64_t kCaptureDelayNs = 50'000'000;

PacketNote note_of(const ReceiveReport& report) {
  return {report.qpn, report.has_wr, report.wr_id, false, report.verdict};
}

PacketNote note_of(const OutgoingPacket& packet) {
  return {packet.qpn, packet.has_wr, packet.wr_id, packet.retransmitted, ""};
}

std::uint64_t after(std::uint64_t since_ns, std::uint64_t delay_ns) {
  return since_ns == kNever ? kNever : since_ns + delay_ns;
}

}  // namespace

Engine::Engine(std::shared_ptr<GuardedAdapter> adapter, std::unique_ptr<Link> wire,
               std::unique_ptr<Link> loopback, Capture capture, EventBell& async_bell,
               SinkTable& completion_sinks)
    : guarded_(std::move(adapter)),
      wire_(std::move(wire)),
      loopback_(std::move(loopback)),
      capture_(std::move(capture)),
      async_bell_(async_bell),
      completion_sinks_(completion_sinks),
      own_(guarded_->adapter.config().gids),
      filled_(kLinkBatch),
      buffers_(std::make_unique<std::uint8_t[]>(kLinkBatch * kDatagramBufferBytes)) {}

bool Engine::is_own(const Gid& gid) const {
  return std::find(own_.begin(), own_.end(), gid) != own_.end();
}

std::uint64_t Engine::deadline_ns() const {
  return std::min({adapter_deadline_ns_, links_due_ns_, after(held_since_ns_, kHoldNs),
                   after(dirty_since_ns_, kCaptureDelayNs)});
}

bool Engine::round(bool receive, bool transmit, bool patient) {
  const std::uint64_t now_ns = monotonic_ns();
  bool released = keep_promises(now_ns);
  released |= links_due_ns_ <= now_ns;
  tell_links(now_ns);
  // What is due may be the time-out of a packet whose answer is there.
  const bool looks = receive || released || now_ns >= adapter_deadline_ns_;
  const bool arrived = fetch(looks);
  // A poll that finds nothing new leaves the adapter, and its lock, alone.
  const bool lost = wire_->failure() != 0 && !told_lost_;
  const bool releases = holds_acks_ && (!patient || (receive && !arrived));
  const bool blocked = wire_->blocked() || loopback_->blocked();
  if (!arrived && !transmit && !lost && now_ns < adapter_deadline_ns_ && !blocked &&
      !more_locally_ && !releases && !filled_full_) {
    // What came may have been delayed or held back.
    note_promises(now_ns);
    tell_links(now_ns);
    return false;
  }
  const bool was_stuck = to_wire_.taken < to_wire_.count;
  run_adapter(now_ns, patient && !releases, arrived || !looks);
  capture_incoming(from_wire_);
  capture_incoming(from_loopback_);
  for (std::size_t i = 0; i < filled_count_; ++i) capture_outgoing(filled_[i]);
  hand_over();
  note_promises(now_ns);
  tell_links(now_ns);
  if (wire_->failure() != 0 && !told_lost_) return true;
  if (more_locally_) return true;
  if (to_loopback_.count > 0 || from_loopback_.count > 0) return true;
  // Who is patient has something else to do than to look whether more has come.
  if (from_wire_.count >= (patient ? kLinkBatch : 1)) return true;
  return (was_stuck || filled_full_) && !wire_->blocked();
}

// Before each look: whoever has just made a queue pair that needs them finds them with its first
// packet.
void Engine::heed_fields() {
  const bool heeded = capture_.is_open() || guarded_->adapter.heeds_fields();
  if (heeded == tells_fields_) return;
  tells_fields_ = heeded;
  wire_->tell_fields(heeded);
}

bool Engine::fetch(bool receive) {
  if (receive) heed_fields();
  from_wire_.count = receive ? wire_->receive(from_wire_.datagrams) : 0;
  arrived_ |= from_wire_.count > 0;
  from_loopback_.count = loopback_->receive(from_loopback_.datagrams);
  return from_wire_.count + from_loopback_.count > 0;
}

void Engine::note_promises(std::uint64_t now_ns) {
  if (wire_->holding() || loopback_->holding()) {
    held_since_ns_ = std::min(held_since_ns_, now_ns);
  } else {
    held_since_ns_ = kNever;
  }
  if (capture_.dirty()) dirty_since_ns_ = std::min(dirty_since_ns_, now_ns);
}

// Does what was put off and is due. True if the links let go of datagrams that may be received now.
bool Engine::keep_promises(std::uint64_t now_ns) {
  if (now_ns >= after(dirty_since_ns_, kCaptureDelayNs)) {
    dirty_since_ns_ = kNever;
    capture_.flush();
  }
  if (now_ns < after(held_since_ns_, kHoldNs)) return false;
  held_since_ns_ = kNever;
  wire_->release();
  loopback_->release();
  return true;
}

void Engine::tell_links(std::uint64_t now_ns) {
  links_due_ns_ = std::min(wire_->pass_time(now_ns), loopback_->pass_time(now_ns));
}

void Engine::run_adapter(std::uint64_t now_ns, bool patient, bool unread) {
  const std::lock_guard lock(guarded_->mutex);
  Adapter& adapter = guarded_->adapter;
  if (wire_->failure() != 0 && !told_lost_) {
    told_lost_ = true;
    adapter.fail_device();
  }
  deliver(adapter, from_wire_, now_ns);
  deliver(adapter, from_loopback_, now_ns);
  if (adapter.next_deadline_ns() <= now_ns) adapter.advance(now_ns, unread);
  more_locally_ = adapter.exchange(now_ns);
  if (!patient) adapter.release_acks();
  fill(adapter, now_ns, patient);
  holds_acks_ = adapter.holds_acks();
  drain_events(adapter);
  adapter_deadline_ns_ = adapter.next_deadline_ns();
}

void Engine::deliver(Adapter& adapter, Incoming& incoming, std::uint64_t now_ns) {
  for (std::size_t i = 0; i < incoming.count; ++i) {
    const Datagram& datagram = incoming.datagrams[i];
    const bool more = i + 1 < incoming.count;
    std::uint64_t answered = 0;
    const bool answers = capture_.is_open() && adapter.answered_request(datagram.bytes, answered);
    // Made where it is to lie: a copy would wait for what was just written.
    static_assert(std::is_trivially_destructible_v<ReceiveReport>);
    ::new (&incoming.reports[i])
        ReceiveReport(adapter.receive(datagram.route, datagram.bytes, now_ns, more));
    if (answers) {
      incoming.reports[i].has_wr = true;
      incoming.reports[i].wr_id = answered;
    }
    if (incoming.reports[i].numbered) wire_->numbers_packets(datagram.route.source);
  }
}

void Engine::fill(Adapter& adapter, std::uint64_t now_ns, bool patient) {
  filled_count_ = 0;
  filled_full_ = false;
  to_loopback_.count = to_loopback_.taken = 0;
  // Until the wire has taken what it refused, the adapter keeps the rest: the buffers are in use.
  if (to_wire_.taken < to_wire_.count) return;
  to_wire_.count = to_wire_.taken = 0;
  // They lie one behind the other, as links like trains to be.
  std::size_t used = 0;
  while (filled_count_ < kLinkBatch && used < kFilledBytes) {
    OutgoingPacket& packet = filled_[filled_count_];
    const ByteSpan buffer(buffers_.get() + used, kDatagramBufferBytes);
    // Packets of one queue pair make a train; in the next round it is another's turn.
    if (filled_count_ > 0) adapter.keep_turn();
    if (!adapter.next_packet(buffer, packet, now_ns, patient)) break;
    Outgoing& outgoing = is_own(packet.route.destination) ? to_loopback_ : to_wire_;
    outgoing.datagrams[outgoing.count++] = {packet.route, packet.datagram};
    used += packet.datagram.size();
    ++filled_count_;
  }
  filled_full_ = filled_count_ == kLinkBatch || used >= kFilledBytes;
}

void Engine::drain_events(Adapter& adapter) {
  adapter.told();
  completion_sinks_.notify_all(adapter);
  async_bell_.set(adapter.has_event());
}

void Engine::capture_incoming(const Incoming& incoming) {
  if (!capture_.is_open()) return;
  for (std::size_t i = 0; i < incoming.count; ++i) {
    capture_.write(Direction::RECEIVED, incoming.datagrams[i], note_of(incoming.reports[i]),
                   realtime_ns());
  }
}

void Engine::capture_outgoing(const OutgoingPacket& packet) {
  if (!capture_.is_open()) return;
  capture_.write(Direction::SENT, {packet.route, packet.datagram}, note_of(packet), realtime_ns());
}

void Engine::hand_over() {
  const auto hand = [](Link& link, Outgoing& outgoing) {
    if (outgoing.taken == outgoing.count && !link.blocked()) return;
    const std::span left =
        std::span(outgoing.datagrams).subspan(outgoing.taken, outgoing.count - outgoing.taken);
    outgoing.taken += link.send(left);
  };
  hand(*wire_, to_wire_);
  hand(*loopback_, to_loopback_);
}

void Engine::abandon() {
  wire_->abandon();
  loopback_->abandon();
  capture_.abandon();
}

}  // namespace softhca
