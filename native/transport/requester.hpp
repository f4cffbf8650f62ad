// The sending half of a queue pair: turns work queue entries into request packets, and, for the
// reliable services, keeps what is under way until the completer hears of it (IBTA Vol 1, 9.7.3
// to 9.7.5; 9.9.2).
//
//   oldest ... unacked_psn ... next_psn ... highest_psn
//   Going back to an earlier PSN only moves next_psn (and the entry and packet that it stands for).
#pragma once

#include <cstdint>
#include <deque>
#include <span>

#include "memory/memory_table.hpp"
#include "queue/send_queue.hpp"
#include "transport/look_ahead.hpp"
#include "transport/outlet.hpp"
#include "transport/retry_timer.hpp"
#include "transport/round_trip.hpp"
#include "transport/send_window.hpp"
#include "wire/packet.hpp"
#include "wire/short_packet.hpp"
#include "wire/syndrome.hpp"

namespace softhca {

class QueuePair;

class Requester {
 public:
  explicit Requester(QueuePair& qp) : qp_(qp) {}

  void reset();
  // RTR -> RTS: the first PSN and the retry attributes are known.
  void start();
  // Attributes that matter here were modified.
  void configure();

  bool next_packet(Outlet& out);
  // The same into a datagram, if the next packet is one inside a long message (inner_packet.cpp) or
  // a short one. False: the general way has to do it.
  bool send_plainly(Outlet& out) { return send_inner(out) || send_short(out); }
  std::uint64_t deadline_ns() const;
  void advance();

  // An ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE or READ response (the completer; completer.cpp).
  void on_response(const Packet& packet);
  // For captures: wr_id of the request that a response of this PSN is about, if one is under way.
  bool answered_request(std::uint32_t psn, std::uint64_t& wr_id) const;

  // Short messages (short_message.cpp). Whether the request posted last is one that may leave at
  // once; and its packet, with the payload in memory of the user's, or copied to `room`. False: it
  // cannot be made so. Then, that it has left; and that an acknowledgement is to come.
  bool may_send_short() const;
  bool make_short(ShortPacket& out, ByteSpan room) const;
  void sent_short(const ShortPacket& packet);
  void await_acknowledgement() {
    if (!timer_.running()) start_timer();
  }
  // Posts requests that may leave at once, as many as follow each other so, and lets them leave to
  // another adapter of this host (short_run.cpp). How many; nothing is done about the others.
  std::size_t post_short(std::span<const SendWr* const> wrs, std::span<const std::uint64_t> cqes);
  // The whole answer to the READ that is the oldest request, its bytes in `from`. False: it is not
  // so simple, and nothing has happened that the general way would not do once more.
  bool take_answer(const WholeAnswer& packet, AddressSpace& from);
  // Where its payload goes when it is its turn, as Responder::place_ahead().
  std::uint8_t* place_ahead(const WholeAnswer& packet, LookAhead& ahead);
  // The peer has acknowledged everything up to `psn`, and says nothing else. What it means while a
  // probe is under way is another question.
  void on_plain_acknowledge(std::uint32_t psn);
  bool is_probing() const { return probing_; }

  // UC and UD: completes what has left.
  void complete_unreliable();

  // Goes back to `psn`, if that is still under way.
  void repeat_from(std::uint32_t psn);

  // Completes everything left in the send queue as flushed.
  void flush();
  // In SQD: nothing that was started is left.
  bool drained() const;
  // Whether next_packet() has anything to look at.
  bool may_have_packets() const;
  std::uint32_t sq_psn() const { return highest_psn_; }

 private:
  // A message that fills more than this many packets asks for an acknowledgement on the way.
  static constexpr std::uint32_t kAckRequestEvery = 16;

  struct ReadInFlight {
    std::uint32_t first_psn;
    std::uint32_t end_psn;
    bool is_read;  // Or an atomic, an ATOMIC WRITE or a FLUSH.
  };
  struct Failure {
    bool set = false;
    std::uint64_t index = 0;
    WcStatus status = WcStatus::SUCCESS;
    AccessFault fault;
    bool by_peer = false;
  };

  void start_timer();

  // Short messages (short_message.cpp). The next request is one; its packet but for the payload;
  // it has left.
  bool next_is_short() const;
  bool all_has_left() const;
  std::int32_t window_left() const;
  void leave_short();
  bool send_short(Outlet& out);
  bool send_inner(Outlet& out);
  bool copy_short(ByteSpan to);
  const std::uint8_t* place_of(const WholeAnswer& packet, std::uint64_t index);
  struct ShortRun;
  const std::uint8_t* copy_inline(const Sge& sge);
  bool add_to_run(const SendWr& wr, std::uint64_t cqe, ShortRun& run);
  bool lend_next(const SendWr& wr, std::uint64_t cqe, ShortRun& run);
  void left_alone(const ShortPacket& packet, std::uint32_t psns);
  // READs (short_read.cpp).
  bool ask_next(const SendWr& wr, std::uint64_t cqe);
  void send_run(ShortRun& run);
  bool next_is_inner() const;

  // Sending (requester.cpp).
  bool may_send_next();
  bool waits_for_reads(const SendWqe& wqe) const;
  bool begin(SendWqe& wqe);
  std::uint32_t read_chunk() const;
  bool send_at(std::uint64_t index, std::uint32_t packet_number, bool again, Outlet& out,
               std::uint32_t& psns);
  void note_repeat(std::uint64_t index, std::uint32_t packet_number);
  bool send_unreliable(Outlet& out);
  std::uint32_t window() const;
  void set_position(std::uint32_t psn);
  bool may_retry();
  void go_back_to(std::uint32_t psn);
  void after_send(std::uint32_t psn, std::uint32_t psns, bool ack_request, bool again);

  // Entries that send nothing (local_work.cpp).
  void run_local_work();
  bool may_run_local(const SendWqe& wqe) const;
  AccessFault execute_local(const SendWqe& wqe);
  void complete_local();

  // Packets of one entry (request_packet.cpp).
  struct Plan {
    Packet packet;
    std::uint64_t offset = 0;  // Of the payload in the message.
    std::uint32_t payload_bytes = 0;
    std::uint32_t psns = 1;  // PSNs that the packet takes.
  };
  Plan plan(const SendWqe& wqe, std::uint32_t packet_number, std::uint32_t most) const;
  Plan plan_message(const SendWqe& wqe, std::uint32_t packet_number, std::uint32_t most) const;
  Plan plan_read(const SendWqe& wqe, std::uint32_t packet_number) const;
  Plan plan_atomic(const SendWqe& wqe) const;
  Plan plan_confirmed(const SendWqe& wqe) const;
  bool fill_wire(std::uint64_t index, Plan& plan, bool again, Outlet& out);
  bool fill_local(std::uint64_t index, Plan& planned, std::uint32_t packet_number, Outlet& out);
  std::uint64_t may_follow() const;
  const std::uint8_t* payload_to_sum(std::uint64_t index, const Plan& plan) const;
  bool fetch_payload(std::uint64_t index, const Plan& plan, ByteSpan to);
  bool wants_ack(const SendWqe& wqe, const Plan& plan, bool again);
  bool asks_at_its_end(const SendWqe& wqe) const;
  bool wants_ack_on_wire(bool ends_and_asks, std::uint32_t psn, bool again);
  bool is_waited_for(const SendWqe& wqe) const;

  // Failing (requester.cpp).
  void fail(std::uint64_t index, WcStatus status, const AccessFault& fault, bool by_peer);
  void settle_failure();

  // Completing (completer.cpp).
  void on_acknowledge(const Packet& packet);
  void on_answered_again();
  void on_read_response(const Packet& packet);
  void on_atomic_acknowledge(const Packet& packet);
  void on_sequence_nak(std::uint32_t psn);
  void on_rnr_nak(std::uint32_t psn, std::uint8_t timer_code);
  void on_nak(std::uint32_t psn, NakCode code);
  void on_fatal_nak(std::uint32_t psn, NakCode code);
  void on_reserved_syndrome(std::uint32_t psn);
  // Everything before `end_psn` is acknowledged, as far as no READ or atomic is unanswered. False:
  // one was.
  bool acknowledge_until(std::uint32_t end_psn);
  void progress(std::uint32_t unacked_psn);
  void repeat_answered(std::uint32_t psn);
  bool repeats_already() const;
  void response_lost();
  bool acknowledge_before(std::uint32_t psn);
  bool under_way(std::uint32_t psn) const;
  bool take_response(std::uint32_t psn, std::uint64_t& index);
  void refuse_response(std::uint32_t psn);
  // The opcode of a READ response says whether its answer begins and ends with it.
  static bool is_in_order(const Packet& packet, const SendWqe& wqe, std::uint32_t number);
  // The next READ or atomic entry that is owed a response, and the PSN owed. False: there is none
  // that begins before `end_psn`.
  bool expected_response(std::uint32_t end_psn, std::uint64_t& index, std::uint32_t& psn) const;

  QueuePair& qp_;
  std::uint64_t current_ = 0;         // Entry that next_psn belongs to.
  std::uint32_t current_packet_ = 0;  // Its packet, counted in PSNs from the entry's first.
  std::uint32_t next_psn_ = 0;
  std::uint32_t unacked_psn_ = 0;
  std::uint32_t highest_psn_ = 0;  // One beyond what was ever sent.
  std::deque<ReadInFlight> reads_;
  Failure failure_;

  RetryTimer timer_;
  SendWindow window_;
  std::uint32_t since_ack_request_ = 0;
  std::uint8_t retries_left_ = 0;
  std::uint8_t rnr_retries_left_ = 0;
  bool waiting_rnr_ = false;
  std::uint64_t rnr_deadline_ns_ = kNever;
  bool probe_wanted_ = false;
  bool probing_ = false;              // A probe of unacked_psn_ is under way.
  bool went_back_ = false;            // To what the peer lacks: what it says again is nothing new.
  std::uint32_t loss_until_psn_ = 0;  // One loss per window: until this PSN is acknowledged.
  MessagePart part_;                  // Of the answer that is being received.
  bool in_loss_ = false;
  RoundTrip round_trip_;
};

}  // namespace softhca
