// Joins an adapter with its links, one round at a time: fetch, let the adapter take it all in, send
// what it wants sent.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "driver/completion_sink.hpp"
#include "driver/event_bell.hpp"
#include "driver/guarded_adapter.hpp"
#include "link/capture.hpp"
#include "link/link.hpp"
#include "link/loopback_link.hpp"

namespace softhca {

// One caller at a time; it locks the adapter for the part in the middle only, never around a system
// call.
class Engine {
 public:
  // `loopback` carries packets to our own addresses, `wire` all others.
  Engine(std::shared_ptr<GuardedAdapter> adapter, std::unique_ptr<Link> wire,
         std::unique_ptr<Link> loopback, Capture capture, EventBell& async_bell,
         SinkTable& completion_sinks);

  // `receive`: fetch from the wire. `transmit`: the adapter was called since the last round and may
  // have something to send. True: another round finds more to do at once.
  // `patient`: the caller will be back soon. Acknowledgements wait for requests to go with, until
  // such a caller has found nothing new on the wire, or somebody else comes.
  bool round(bool receive, bool transmit, bool patient);
  bool holds_acks() const { return holds_acks_; }
  bool has_more_to_send() const { return filled_full_; }

  // When a round is due though nothing arrives and nobody calls; kNever if not.
  std::uint64_t deadline_ns() const;
  // When the adapter is due, which may have changed since the last round.
  void heed_adapter(std::uint64_t deadline_ns) { adapter_deadline_ns_ = deadline_ns; }

  // Whether anything has come from the wire since the last question.
  bool take_arrivals() { return std::exchange(arrived_, false); }
  Link& wire() { return *wire_; }
  const Capture& capture() const { return capture_; }
  void close() { capture_.close(); }
  void abandon();

 private:
  // Enough for the packets of one batch, each with its buffer.
  struct Outgoing {
    std::array<Datagram, kLinkBatch> datagrams;
    std::size_t count = 0;
    std::size_t taken = 0;  // Handed to the link.
  };
  struct Incoming {
    std::array<Datagram, kLinkBatch> datagrams;
    std::array<ReceiveReport, kLinkBatch> reports;
    std::size_t count = 0;
  };

  bool fetch(bool receive);
  void heed_fields();
  void run_adapter(std::uint64_t now_ns, bool patient, bool unread);
  void fill(Adapter& adapter, std::uint64_t now_ns, bool patient);
  void deliver(Adapter& adapter, Incoming& incoming, std::uint64_t now_ns);
  void drain_events(Adapter& adapter);
  void capture_incoming(const Incoming& incoming);
  void capture_outgoing(const OutgoingPacket& packet);
  void hand_over();
  bool keep_promises(std::uint64_t now_ns);
  void note_promises(std::uint64_t now_ns);
  void tell_links(std::uint64_t now_ns);
  bool is_own(const Gid& gid) const;

  std::shared_ptr<GuardedAdapter> guarded_;
  std::unique_ptr<Link> wire_;
  std::unique_ptr<Link> loopback_;
  Capture capture_;
  EventBell& async_bell_;
  SinkTable& completion_sinks_;
  std::vector<Gid> own_;

  Incoming from_wire_;
  Incoming from_loopback_;
  Outgoing to_wire_;
  Outgoing to_loopback_;
  std::vector<OutgoingPacket> filled_;  // This round's, for the capture.
  std::size_t filled_count_ = 0;
  std::unique_ptr<std::uint8_t[]> buffers_;
  bool filled_full_ = false;   // The adapter may have more to send.
  bool arrived_ = false;       // From the wire.
  bool tells_fields_ = true;   // The wire does (Link::tell_fields()).
  bool more_locally_ = false;  // The adapter has packets for its own host.
  bool told_lost_ = false;     // The adapter knows that the wire is lost.
  bool holds_acks_ = false;
  std::uint64_t adapter_deadline_ns_ = 0;  // 0: the first round asks.
  std::uint64_t links_due_ns_ = kNever;    // A link wants its turn then.
  std::uint64_t held_since_ns_ = kNever;   // A link holds datagrams back since then.
  std::uint64_t dirty_since_ns_ = kNever;  // The capture has unwritten packets since then.
};

}  // namespace softhca
