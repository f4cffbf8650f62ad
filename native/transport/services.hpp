// What a queue pair needs of the adapter it belongs to.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "memory/memory_table.hpp"
#include "queue/completion_queue.hpp"
#include "queue/shared_receive_queue.hpp"
#include "transport/congestion.hpp"
#include "transport/counters.hpp"
#include "transport/local_path.hpp"
#include "vocabulary/call_time.hpp"
#include "vocabulary/observer.hpp"
#include "wire/icrc_memory.hpp"
#include "wire/short_packet.hpp"

namespace softhca {

class QueuePair;

class Services {
 public:
  Services(MemoryTable& memory_table, bool early, std::uint8_t mtu)
      : memory(memory_table), retry_early(early), active_mtu(mtu) {}
  virtual ~Services() = default;

  MemoryTable& memory;
  Counters counters;  // Of the whole adapter.
  CallTime time;
  const bool retry_early;
  bool lazy_acks = false;  // See AdapterConfig.
  bool unread = false;     // See Adapter::advance().
  CongestionSettings congestion;
  std::uint8_t active_mtu;  // Mtu code of the port.
  IcrcMemory sent_icrcs;
  std::uint64_t activity = 0;  // Completions and events that there ever were.

  // Short messages on their way, while one call has them.
  static constexpr std::size_t kRunPackets = 8;
  std::array<ShortPacket, kRunPackets> run;

  // Told of what happens; null: nobody.
  Observer* observer = nullptr;

  // Puts the time on it, if the queue wants that.
  virtual void complete(CompletionQueue& cq, Completion& completion) = 0;
  // The same for one that is written where it will lie, and that nobody is to be told of. Null: it
  // is not so simple.
  Completion* begin_quietly(CompletionQueue& cq) {
    memory.write_behind.flush();
    return observer == nullptr && cq.quiet_room() > 0 ? &cq.quiet_slot() : nullptr;
  }
  void end_quietly(CompletionQueue& cq, Completion& completion) {
    ++activity;
    completion.timestamp_ns = cq.timestamps() ? time.now_ns() : 0;
    cq.quiet_push();
  }
  virtual void raise(EventType type, std::uint32_t object) = 0;
  // The queue pair may have a packet to send, or another deadline.
  virtual void schedule(QueuePair& qp) = 0;
  // Sends the request posted last to an adapter of this host. False: it has to wait for its turn.
  virtual bool send_at_once(QueuePair& qp) = 0;
  // What this queue pair has lent to adapters of this host is nobody's business any more.
  virtual void recall_payloads(std::uint32_t qpn, LentPayloads which) = 0;
  // The shared receive queue that an XRCETH names, in this XRC domain; null if there is none.
  virtual SharedReceiveQueue* find_xrc_srq(std::uint32_t srqn, std::uint32_t xrcd) = 0;
  virtual CompletionQueue* find_cq(std::uint32_t cq) = 0;
};

}  // namespace softhca
