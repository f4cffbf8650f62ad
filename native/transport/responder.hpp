// The receiving half of a queue pair: a list of named checks per request, its execution, and the
// replies in order (IBTA Vol 1, 9.7.4, 9.7.5, 9.9.3).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "memory/memory_table.hpp"
#include "queue/receive_queue.hpp"
#include "queue/shared_receive_queue.hpp"
#include "transport/attributes.hpp"
#include "transport/look_ahead.hpp"
#include "transport/outlet.hpp"
#include "wire/packet.hpp"
#include "wire/short_packet.hpp"
#include "wire/syndrome.hpp"

namespace softhca {

class QueuePair;
class CompletionQueue;
class PlainAccess;
struct Completion;

class Responder {
 public:
  explicit Responder(QueuePair& qp) : qp_(qp) {}

  void reset();
  // INIT -> RTR: the first PSN and the number of responder resources are known.
  void start();
  // SQD -> SQD may change the number of responder resources; those in use are kept.
  void resize_resources();

  // A request packet, by service type. `datagram_bytes` is its size from BTH to ICRC.
  void on_reliable(const Packet& packet);
  void on_unreliable(const Packet& packet);
  void on_datagram(const Packet& packet, const Route& route, std::size_t datagram_bytes);

  // Short messages (short_receive.cpp). Takes those that it can, up to the first that is for
  // another queue pair.
  std::size_t take_short(std::span<const ShortPacket> packets);
  // The same for one whose payload lies in `from`, which need not be this process, to be fetched.
  bool take_lent(const ShortPacket& packet, AddressSpace& from);
  // Where its payload goes when it is its turn, behind `ahead`, where it is noted. Null: that is
  // not so simple, or it will be refused.
  std::uint8_t* place_ahead(const ShortPacket& packet, LookAhead& ahead) const;
  // The two steps of it for one: its bytes are where they belong, or it is not to be taken; then it
  // has come. DISOWNED: nobody will ever see its completion.
  enum class Short : std::uint8_t { TAKEN, OWES_ACKNOWLEDGE, DISOWNED };
  bool admit_short(const ShortPacket& packet);
  Short finish_short(const ShortPacket& packet);
  // READs of a neighbour's (short_read.cpp). See QueuePair.
  bool take_read(const ShortPacket& packet);
  bool next_is_whole(WholeAnswer& packet, std::uint32_t& rkey) const;
  void sent_whole();
  void push_acknowledge(std::uint32_t psn);
  // A plain acknowledgement is all that there is to be said: of this. Then, that it has left.
  bool next_is_plain(std::uint32_t& psn, std::uint32_t& msn) const;
  void sent_plain();
  // An acknowledgement of `psn` leaves without being pushed. False: others are to leave before it.
  bool acknowledges_at_once(std::uint32_t psn);

  bool next_packet(Outlet& out);
  // When messages that asked for no acknowledgement get one.
  std::uint64_t deadline_ns() const { return acknowledge_at_ns_; }
  void advance();
  bool has_output() const { return !replies_.empty(); }
  bool acknowledges_next() const {
    return !replies_.empty() && replies_.front().kind == ReplyKind::ACKNOWLEDGE;
  }
  // Nothing is to be sent but one acknowledgement, of so little that the peer can do without it
  // for a while.
  bool may_be_held_back() const;
  // Executed, and one packet says so.
  bool owes_one_packet() const;
  // What may wait for company does not wait any more.
  void acknowledge_now();
  // The queue pair has failed: what was executed is still said, but no memory is read any more.
  void end_answers();
  // What the READ response with this PSN was to bring is gone.
  void on_unreadable(std::uint32_t psn);
  // Forgets the replies that wait, and takes back what answers have lent.
  void silence();

  // Completes the receive that a message was filling, then all that are posted, as flushed.
  void flush();
  std::uint32_t rq_psn() const { return expected_psn_; }
  // A receive of this queue is being filled.
  bool fills_receive_of(const SharedReceiveQueue& srq) const {
    return has_receive_ && receive_srq_ == srq.handle;
  }
  bool fills_own_receive() const { return has_receive_ && receive_srq_ == 0; }
  void add_load(QpLoad& load) const;
  // wr_id of the receive being filled, for captures.
  bool current_receive(std::uint64_t& wr_id) const;
  // Its token (Completion::cqe); 0 if there is none.
  std::uint64_t filling_cqe() const { return has_receive_ ? receive_.cqe : 0; }

 private:
  static constexpr std::uint32_t kMaxMessageBytes = 1u << 31;  // IBTA Vol 1, 9.4.1.
  // A peer's window holds several times as many packets.
  static constexpr std::int32_t kMostHeldBack = 16;
  // Long before a peer probes.
  static constexpr std::uint64_t kLazyAckNs = 200'000;

  enum class Step : std::uint8_t { CONTINUE, STOP };
  enum class InProgress : std::uint8_t { NOTHING, SEND, WRITE };
  enum class ReplyKind : std::uint8_t { ACKNOWLEDGE, READ, ATOMIC };

  struct Reply {
    ReplyKind kind = ReplyKind::ACKNOWLEDGE;
    bool repeats = false;  // READ and ATOMIC: answers a duplicate; the answer was sent before.
    std::uint8_t syndrome = kSyndromeAck;
    std::uint32_t psn = 0;
    std::uint32_t msn = 0;
    std::uint32_t resource = 0;     // READ and ATOMIC.
    std::uint32_t next_packet = 0;  // READ: counted from the resource's first PSN.
    std::uint32_t first_packet = 0;
    std::uint32_t end_packet = 0;
    std::uint64_t end_bytes = 0;  // READ: of the resource's bytes, the first not to be sent.
  };
  // What a READ, atomic, ATOMIC WRITE or FLUSH leaves behind, so that a duplicate can be answered
  // (IBTA Vol 1, 9.7.5.1.5).
  struct Resource {
    bool used = false;
    bool replying = false;  // Its reply still waits.
    bool is_read = false;
    std::uint32_t first_psn = 0;
    std::uint32_t psn_count = 1;
    std::uint32_t msn = 0;
    std::uint64_t address = 0;
    std::uint32_t rkey = 0;
    Accessor who = 0;
    std::uint32_t length = 0;
    std::uint64_t original = 0;  // What the address held; of a FLUSH nothing.
    WordPlace place;             // Of that, where READs before it are still to be answered.
    // What is no READ: atomics, ATOMIC WRITE and FLUSH.
    bool executed = false;  // False while it waits behind a READ.
    std::uint8_t opcode = 0;
    AtomicEth atomic;
    std::uint64_t value = 0;  // ATOMIC WRITE.
    Feth feth;
  };

  // Checks, in their order (responder_checks.cpp).
  Step check_psn(const Packet& packet);
  Step check_sequence(const Packet& packet);
  Step check_operation(const Packet& packet);
  Step check_resources(const Packet& packet);
  Step check_length(const Packet& packet);
  Step check_access(const Packet& packet);
  Step check_receive(const Packet& packet);

  // Execution (responder.cpp).
  Step execute(const Packet& packet);
  void begin_part(const Packet& packet);
  Step execute_send(const Packet& packet);
  Step execute_write(const Packet& packet);
  Step execute_read(const Packet& packet);
  const Resource& accept_read(std::uint32_t psn, const Reth& reth);
  Step execute_atomic(const Packet& packet);
  AccessFault run_atomic(Resource& resource);
  void finish_packet(const Packet& packet);
  bool finish_message(const Packet& packet);
  void disown_message(std::uint32_t last_psns);
  void complete_receive(const Packet& packet);
  void acknowledge_some_day();

  struct ShortPlaces;
  bool only_acknowledgements_wait() const;
  bool only_reads_wait() const;
  bool is_between_messages() const;
  bool takes_short() const;
  bool is_next_short(const ShortPacket& packet);
  bool is_sound(const ShortPacket& packet) const;
  const std::uint8_t* place_of(const ShortPacket& packet, ShortPlaces& places,
                               std::uint32_t receives_ahead = 0) const;
  bool place_short(const ShortPacket& packet, ShortPlaces& places);
  Short end_short(const ShortPacket& packet);
  std::size_t take_sends(std::span<const ShortPacket> packets, PlainAccess& memory);
  bool fill_receive(std::uint64_t behind, ByteView payload, PlainAccess& memory) const;
  bool complete_short(const ShortPacket& packet);
  void describe_short(const ShortPacket& packet, Completion& completion);

  // READs and the atomics behind them (responder_order.cpp).
  bool atomics_wait() const;
  bool run_waiting_atomics();
  bool is_overtaken(const Reply& reply) const;
  void hide_atomics(const Reply& reply, std::uint64_t address, ByteSpan payload) const;

  // Refusals (responder.cpp): a NAK and the error state for reliable services, silence for the
  // others.
  Step refuse_request(NakCode code, const AccessFault& fault);
  Step refuse_receive(NakCode code, WcStatus status, const AccessFault& fault);
  Step send_rnr_nak(const Packet& packet);
  void drop_message(WcStatus status, const AccessFault& fault);
  void abandon_message(WcStatus status, const AccessFault& fault);
  void fail_receive(WcStatus status, const AccessFault& fault);

  // Receives (responder_receive.cpp).
  bool take_receive(const Packet& packet);

  // Duplicates and replies (responder_reply.cpp).
  void on_duplicate(const Packet& packet);
  std::uint32_t acknowledged_behind(std::uint32_t psn) const;
  void on_duplicate_read(const Packet& packet);
  void on_duplicate_atomic(const Packet& packet);
  bool find_resource(std::uint32_t psn, bool is_read, std::uint32_t& index) const;
  bool is_waited_for(std::uint32_t resource) const;
  bool owes_answer(std::uint32_t resource) const;
  Resource* take_resource(std::uint32_t& index);
  void push_nak(std::uint32_t psn, std::uint8_t syndrome);
  void push_syndrome(std::uint32_t psn, std::uint8_t syndrome);
  bool send_acknowledge(Outlet& out);
  bool send_atomic(Outlet& out);
  bool send_read(Outlet& out);
  // Puts a packet without payload into the outlet.
  void send_bare(Packet& packet, Outlet& out);
  std::uint32_t next_psn_of(const Reply& reply) const;
  Packet read_response(const Reply& reply, std::uint32_t packets) const;
  AccessFault fill_read(const Reply& reply, std::uint32_t& packets, Outlet& out);
  void refuse_late(std::deque<Reply>::iterator reply, std::uint32_t psn, const AccessFault& fault);
  // A NAK, unless nobody is there any more who could send it.
  void push_refusal(std::uint32_t psn, NakCode code, const AccessFault& fault);
  std::uint32_t completed_before(std::uint32_t psn) const;

  QueuePair& qp_;
  std::uint32_t expected_psn_ = 0;
  std::uint32_t msn_ = 0;
  std::uint32_t acknowledged_psn_ = 0;  // Of the acknowledgement that left last.
  std::uint64_t acknowledge_at_ns_ = kNever;
  MessagePart part_;  // Of the message that is being received.
  bool nak_outstanding_ = false;
  std::optional<std::uint32_t> refused_psn_;  // The first that the peer was told is refused.
  bool peer_seen_ = false;

  InProgress in_progress_ = InProgress::NOTHING;
  // Whose regions and windows the request may name: the queue pair's domain, or for XRC that of the
  // SRQ in the XRCETH.
  Accessor who_ = 0;
  std::uint32_t srqn_ = 0;  // That the XRCETH of the message's first packet names.
  std::uint64_t write_address_ = 0;
  std::uint32_t write_rkey_ = 0;
  std::uint64_t write_left_ = 0;     // Bytes still to come.
  std::uint32_t message_bytes_ = 0;  // Bytes that have come.
  std::uint8_t datagram_ip_version_ = 0;

  bool has_receive_ = false;
  TakenReceive receive_;
  CompletionQueue* receive_cq_ = nullptr;
  std::uint32_t receive_pd_ = 0;
  std::uint32_t receive_srq_ = 0;  // Where it was taken from; 0: the queue pair's own.

  std::vector<Resource> resources_;
  std::uint32_t next_resource_ = 0;
  std::deque<Reply> replies_;
};

}  // namespace softhca
