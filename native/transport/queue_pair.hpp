// One queue pair: its attributes, state and queues, and the two halves that work on them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>

#include "queue/completion_queue.hpp"
#include "queue/receive_queue.hpp"
#include "queue/send_queue.hpp"
#include "queue/shared_receive_queue.hpp"
#include "transport/attributes.hpp"
#include "transport/congestion.hpp"
#include "transport/counters.hpp"
#include "transport/local_path.hpp"
#include "transport/look_ahead.hpp"
#include "transport/outlet.hpp"
#include "transport/path_migration.hpp"
#include "transport/requester.hpp"
#include "transport/responder.hpp"
#include "transport/services.hpp"
#include "vocabulary/own_ports.hpp"
#include "vocabulary/status.hpp"
#include "wire/packet.hpp"

namespace softhca {

class QueuePair {
 public:
  struct Queues {
    CompletionQueue* send_cq = nullptr;
    CompletionQueue* recv_cq = nullptr;
    SharedReceiveQueue* srq = nullptr;
  };

  QueuePair(Services& services, std::uint32_t qpn, const QpInit& init, Queues queues);

  // --- verbs. The adapter has checked what concerns its tables (handles, indices into GID and
  // P_Key tables). --------- `route` and `pkey` are what attr.ah_attr and attr.pkey_index stand
  // for, where the mask has them.
  Status modify(const QpAttr& attr, std::uint32_t mask, const Route& route, std::uint16_t pkey);
  QpAttr query() const;
  QpLoad load() const;
  // `route` is where a UD request goes; `ah_ok` is false when its handle named nothing usable.
  // `cqe` comes back in the completion.
  Status post_send(const SendWr& wr, const Route& route, bool ah_ok, std::uint64_t cqe);
  // One after the other, until one is refused; `posted` counts those that were taken.
  Status post_recv(std::span<const RecvWr* const> wrs, std::span<const std::uint64_t> cqes,
                   std::size_t& posted);
  Status check_post_recv() const;
  // Whether the present state takes send requests.
  Status check_post_state() const;

  // --- packets
  // ---------------------------------------------------------------------------------------------------------
  // False when the packet was dropped; `verdict` then says why.
  bool receive(const Packet& packet, const Route& route, std::size_t datagram_bytes,
               const char*& verdict);
  // The two steps of it: whether the packet is for this queue pair as it is, and what it brings.
  bool admit(const Packet& packet, const Route& route, std::size_t datagram_bytes,
             const char*& verdict);
  bool dispatch(const Packet& packet, const Route& route, std::size_t datagram_bytes,
                const char*& verdict);
  // The same for short messages that come one after the other, the first of which is for this queue
  // pair: how many were taken. With the next it is not so simple, and nothing is changed by it.
  std::size_t receive_short(std::span<const ShortPacket> packets, const Route& route);
  // The same for one whose payload lies in `from_space`, which need not be this process.
  bool receive_lent(const ShortPacket& packet, AddressSpace& from_space, const Route& route);
  bool admits_short(const ShortPacket& packet, const Route& route) const;
  void took_short(std::span<const ShortPacket> packets);
  // Acknowledgements between adapters of this host (short_acknowledge.cpp). Whether one is all that
  // there is to be sent; then, that it has left. And one that has come; false: it is not so simple,
  // and nothing is changed.
  bool next_is_acknowledge(PlainAcknowledge& packet) const;
  void sent_acknowledge();
  bool receive_acknowledge(const PlainAcknowledge& packet, const Route& route);
  bool admits_answer(const PlainAcknowledge& packet, const Route& route) const;
  // READs between adapters of this host (short_read.cpp). A request for one that has come; false:
  // it is not so simple, and nothing is changed. Whether a whole answer is all that there is to be
  // sent, of memory that this key grants; then, that it has left.
  bool receive_read(const ShortPacket& packet, const Route& route);
  bool next_is_answer(WholeAnswer& packet, std::uint32_t& rkey) const;
  void sent_answer(const WholeAnswer& packet);
  // The same for an answer to a READ whose payload lies in `from_space` (short_read.cpp).
  bool receive_answer(const WholeAnswer& packet, AddressSpace& from_space, const Route& route);
  // Where the payloads of those go when it is their turn, behind `ahead`. Null: that is not so
  // simple, or they will be refused.
  std::uint8_t* place_ahead(const ShortPacket& packet, const Route& route, LookAhead& ahead) const;
  std::uint8_t* place_ahead(const WholeAnswer& packet, const Route& route, LookAhead& ahead);
  bool next_packet(Outlet& out);
  // The same where the queue pair has requests alone to say, and the next packet is a plain one.
  // False: nothing is done.
  bool go_on(Outlet& out);
  // Whether it is worth asking: false only where there is none.
  bool may_have_packets() const { return responder.has_output() || requester.may_have_packets(); }
  std::uint64_t deadline_ns() const {
    const std::uint64_t next_ns = std::min(requester.deadline_ns(), responder.deadline_ns());
    return congestion == nullptr ? next_ns : std::min(next_ns, congestion->deadline_ns());
  }
  void advance();
  // The local path has what next_packet() gave out last.
  void handed_over() {
    if (!is_reliable()) requester.complete_unreliable();
  }
  // A packet of it has left by another way than next_packet(): the responder's, or a request.
  void took_turn(bool replied) { replied_last_ = replied; }
  // The adapter at the other end of `local` could not read the payload of this packet of ours.
  void on_unreadable(const LentPayload& payload);

  // --- for the two halves
  // ------------------------------------------------------------------------------------------------
  QpState state() const { return attr.qp_state; }
  bool is_reliable() const { return init.type != QpType::UC && init.type != QpType::UD; }
  std::uint32_t mtu() const { return mtu_bytes(attr.path_mtu); }
  void count(std::uint64_t Counters::*which, std::uint64_t by = 1) {
    counters.*which += by;
    services.counters.*which += by;
  }
  // A packet header with everything that does not depend on the request.
  Packet header(Operation operation, std::uint32_t psn, bool masked = false) const;
  // Completes headers, pad and ICRC around a payload that lies where headers end in the buffer.
  void seal(Packet& packet, std::size_t header_bytes, std::size_t payload_bytes, Outlet& out);
  // The same of a packet that is complete but for the ICRC.
  void seal(std::size_t bytes, Outlet& out);
  // The same, with the payload that is at `from` and `pad` bytes behind it. False: nothing is done,
  // and it has to be fetched in another way.
  bool fetch_and_seal(std::size_t header_bytes, std::size_t payload_bytes, std::size_t pad,
                      const std::uint8_t* from, Outlet& out);
  // The same for a packet to an adapter of this host; its payload lies in the buffer or in pieces.
  void seal_local(const Packet& packet, std::uint32_t psns, ByteView payload, Outlet& out);
  // Completes the oldest entry of the send queue.
  void complete_send(WcStatus status, const AccessFault& fault, bool by_peer);
  // To ERR: everything outstanding is flushed, in order, each queue by itself.
  void enter_error();
  // A local failure of the requester: ERR for reliable services, SQE for the others.
  void requester_failed();
  void check_drained();
  void set_state(QpState to);
  void recall_payloads(LentPayloads which = LentPayloads::ALL);

  // A congestion notification came from `from`; false: it means nothing here.
  bool on_notification(const Route& from);

  Services& services;
  const std::uint32_t qpn;
  QpInit init;
  QpAttr attr;
  Route route;
  std::uint16_t pkey = 0xffff;
  LocalPath* local = nullptr;  // Where `route` leads, if that is an adapter of this host.
  // The packet that was received last names a payload that is not there; it was dropped.
  bool payload_unreadable = false;
  // A program behind an ordinary socket is sent what the specification alone would send.
  bool peer_is_adapter = true;
  // A packet has come over the wire. `numbered`: as no ordinary socket sends it.
  void heard(const Route& from, bool numbered) {
    if (from.udp_source_port == heard_port && !numbered) return;
    if (from.source != route.destination) return;  // What a stranger is says nothing of the peer.
    heard_port = from.udp_source_port;
    peer_is_adapter = numbered || is_own_port(from.source, heard_port);
  }
  bool peer_is_program() const { return heard_port != 0 && !peer_is_adapter; }
  std::uint16_t heard_port = 0;
  bool copies_payload = false;  // It leaves with the packet, however long it is.
  Queues queues;
  SendQueue sq;
  ReceiveRing rq;
  Counters counters;
  PathMigration migration;
  std::unique_ptr<CongestionControl> congestion;  // Null: the queue pair sends as it can.
  Requester requester;
  Responder responder;

  // --- for the adapter
  // -----------------------------------------------------------------------------------------------------
  // In which of the adapter's lists of queue pairs that may have packets. An entry in the other one
  // means nothing: its path has changed since.
  enum class Listed : std::uint8_t { NOWHERE, FOR_WIRE, FOR_PATH };
  Listed listed = Listed::NOWHERE;
  bool held_back = false;  // In the list of those whose acknowledgement waits for company.
  std::uint32_t multicast_groups = 0;

 private:
  bool is_plainly_from_peer(std::uint16_t packet_pkey, const Route& from) const;
  bool next_uncontrolled(Outlet& out);
  bool next_patiently(Outlet& out);
  bool next_controlled(Outlet& out);
  void send_notification(Outlet& out);
  void note_mark(const Packet& packet);
  // Of the packet that is being made.
  const Route& route_taken() const;
  void hand_out(ByteSpan transport, Outlet& out);

  bool replied_last_ = false;  // The last packet was the responder's.
  bool led_ = false;           // It was a request that an acknowledgement is to follow.

  void tell_state(QpState from) const;
  void to_reset();
  void to_error_by_user();
  Status check_request(const SendWr& wr, std::uint64_t& length) const;
};

// The table of transitions: required and optional attributes by service type (IBTA Vol 1, 10.3;
// semantics of ib_modify_qp_is_ok). Refuses what is not listed, lacks an attribute, or has one too
// many.
Status check_transition(QpType type, QpState from, QpState to, std::uint32_t mask);

}  // namespace softhca
