// What an adapter holds; private to adapter/.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "adapter/adapter.hpp"
#include "adapter/event_list.hpp"
#include "adapter/icrc_trust.hpp"
#include "adapter/qp_table.hpp"
#include "adapter/qp_timers.hpp"
#include "adapter/warmth.hpp"
#include "memory/memory_table.hpp"
#include "transport/services.hpp"
#include "vocabulary/handle_table.hpp"
#include "vocabulary/random.hpp"

namespace softhca {

struct ProtectionDomain {
  std::uint32_t users = 0;  // Regions, address handles, queue pairs, shared receive queues.
};

struct AddressHandle {
  std::uint32_t pd = 0;
  AhAttr attr;
};

struct DeviceMemory {
  std::vector<std::uint8_t> storage;
  ByteSpan bytes;  // Of `storage`, from the first page boundary on.
  std::uint32_t regions = 0;
};

struct XrcDomain {
  std::uint32_t users = 0;
};

// An acknowledgement, or the answer to an atomic, of a queue pair that may be gone by now.
struct Farewell {
  OutgoingPacket packet;
  std::array<std::uint8_t, 64> bytes;
};

struct Adapter::State final : Services {
  explicit State(AdapterConfig adapter_config);

  void complete(CompletionQueue& cq, Completion& completion) override;
  void raise(EventType type, std::uint32_t object) override;
  void schedule(QueuePair& qp) override;
  bool send_at_once(QueuePair& qp) override;
  void recall_payloads(std::uint32_t qpn, LentPayloads which) override;
  SharedReceiveQueue* find_xrc_srq(std::uint32_t srqn, std::uint32_t xrcd) override;
  CompletionQueue* find_cq(std::uint32_t cq) override { return cqs.find(cq); }

  // Callers read the clock before they have the lock, and overtake each other in between: time does
  // not run backwards for it.
  void set_time(std::uint64_t at_ns) { time.tell(at_ns); }
  void notify(const CompletionQueue& cq);
  // `wakes`: somebody sleeps until it notifies.
  void overflowed(const CompletionQueue& cq, bool wakes);
  void release_held_back();
  // Ends every call that may have added completions: an overflowed CQ takes its queue pairs to
  // error.
  void settle_overflows();
  // Where connected queue pairs send on this route without a wire; null: they do not.
  LocalPath* path_of(const Route& route);
  bool send_locally(QueuePair& qp);
  bool send_acknowledge(QueuePair& qp);
  bool send_answer(QueuePair& qp);
  template <class Take>
  bool receive_plainly(std::uint32_t qpn, std::uint64_t now_ns, Take take);
  template <class LentPacket>
  std::uint8_t* place_ahead(std::uint32_t qpn, const Route& route, const LentPacket& packet,
                            LookAhead& ahead);
  bool may_leave_at_once(const QueuePair& qp) const;
  std::size_t post_short(QueuePair& qp, std::span<const SendWr* const> wrs,
                         std::span<const std::uint64_t> cqes);
  bool send_to_self(QueuePair& qp, const ShortPacket& packet);
  bool acknowledge_at_once(QueuePair& peer, QueuePair& qp, std::uint32_t psn);
  void leave_path(QueuePair& qp);
  void ask_stalled_paths();
  void settle_debts(QueuePair& qp);
  bool take_farewell(ByteSpan buffer, OutgoingPacket& out);
  // To the queue pair that a packet without a wire is for. False: its payload could not be read.
  bool deliver_locally(const Packet& packet, const Route& route);
  // The next packet of whoever sent the last one and has its turn again. False: the general way
  // has to do it.
  bool go_on(ByteSpan buffer, OutgoingPacket& out);
  // Its acknowledgement waits, or may have left.
  void hold_back(QueuePair& qp, bool wanted);
  bool completes_through_xrc(const QueuePair& qp, const CompletionQueue& cq);
  // A region is gone that may have lain in device memory.
  void leave_device_memory(std::uint32_t mr);
  // The route that an address vector stands for, sent by `qpn`.
  Route route_to(const AhAttr& attr, std::uint32_t qpn) const;
  std::uint16_t source_port(std::uint32_t qpn) const;
  Status check_ah(const AhAttr& attr) const;
  Status check_attributes(const QueuePair& qp, const QpAttr& attr, std::uint32_t mask) const;
  Status post_to(QueuePair& qp, const SendWr& wr, std::uint64_t cqe);
  // Posts what waits in its mapped queue (fed_queues.cpp).
  void take_fed(QueuePair& qp);
  IcrcVerdict check_icrc(const Route& route, ByteView datagram);
  void receive(const Route& route, ByteView datagram, ReceiveReport& report);
  bool receive_short(const Route& route, ByteView datagram, ReceiveReport& report);
  void deliver(QueuePair& qp, const Packet& packet, const Route& route, std::size_t bytes,
               ReceiveReport& report);

  // Back to this adapter.
  struct SelfPath final : LocalPath {
    explicit SelfPath(State& state) : adapter(state) {}
    bool has_room() override { return true; }
    bool can_fetch(std::span<const MemoryPiece>) override { return true; }
    bool delivers_at_once() const override { return true; }
    // See send_to_self().
    std::size_t send_short(std::span<const ShortPacket>) override { return 0; }
    bool lend(const ShortPacket&, std::uint32_t, std::uint32_t) override { return false; }
    bool send_answer(const WholeAnswer&, std::uint32_t, std::uint32_t) override { return false; }
    bool send_acknowledge(const PlainAcknowledge&) override { return false; }
    void send(const LocalPacket& packet) override;
    State& adapter;
  };

  AdapterConfig config;
  Random random;
  MemoryTable memory_table;
  HandleTable<ProtectionDomain> pds;
  HandleTable<AddressHandle> ahs;
  HandleTable<XrcDomain> xrcds;
  HandleTable<DeviceMemory> dms{1u << 16};
  std::uint64_t dm_bytes = 0;                           // Allocated.
  std::map<std::uint32_t, std::uint32_t> dm_of_region;  // By the handle of the region.
  HandleTable<CompletionQueue> cqs;
  HandleTable<SharedReceiveQueue, 4> srqs;  // 24 bits: XRCETH carries the handle.
  QpTable qps;
  Warmth posted_to;  // Queue pairs.
  Warmth arrived_at;
  QpTimers timers;
  IcrcTrust icrc_trust;
  IcrcMemory received_icrcs;
  std::deque<std::uint32_t> ready;  // Numbers of queue pairs that may have packets for the wire.
  std::uint32_t last_sender = 0;    // Of those.
  bool turn_kept = false;
  std::deque<std::uint32_t> ready_local;    // And for adapters of this host.
  std::deque<std::uint32_t> stalled;        // Their path had no room.
  std::uint64_t stalled_until_ns = kNever;  // Then their paths are asked whether they stand still.
  std::deque<Farewell> farewells;           // For the wire.
  std::vector<std::uint32_t> held_acks;     // Those with an acknowledgement that waits for company.
  SelfPath self{*this};
  LocalPaths* paths = nullptr;
  LocalPacket leaving;  // Keeps its storage.
  std::vector<std::uint8_t> leaving_bytes = std::vector<std::uint8_t>(kLocalBroughtBytes);
  EventList async_events;
  bool port_active;
  std::atomic<bool> heeds_fields = false;
  bool failed = false;  // For good.
  std::deque<CompletionEvent> completion_events;
  bool untold = false;  // There are events that nobody has been told of, or packets taken back.
  // When moderated CQs let go of their events, and which.
  std::set<std::pair<std::uint64_t, std::uint32_t>> held_back;
  std::vector<std::uint32_t> overflowed_cqs;
  SendWr fetched;  // What was fetched last; keeps its storage.
  std::map<std::array<std::uint8_t, 16>, std::vector<std::uint32_t>> multicast;
};

}  // namespace softhca
