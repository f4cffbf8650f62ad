// The way to an adapter that shares memory with this one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/local_packet.hpp"
#include "wire/short_packet.hpp"

namespace softhca {

// Payloads that a queue pair has lent: of its own requests, or of its answers to READs as well.
enum class LentPayloads : std::uint8_t { OF_REQUESTS, ALL };

// One of them, by the packet that it belongs to.
struct LentPayload {
  std::uint32_t qpn = 0;
  std::uint32_t psn = 0;
  bool is_answer = false;  // To a READ.

  bool is_one_of(LentPayloads which) const { return which == LentPayloads::ALL || !is_answer; }
};

inline LentPayload lent_payload_of(std::uint32_t qpn, const Packet& packet) {
  return {qpn, packet.bth.psn, packet.info->has(kResponse)};
}

class LocalPath {
 public:
  virtual ~LocalPath() = default;

  // There is room for a packet now. A path without room wakes its adapter when it has some.
  virtual bool has_room() = 0;
  // The adapter there can fetch a payload that lies so.
  virtual bool can_fetch(std::span<const MemoryPiece> pieces) = 0;
  // Whether a packet has arrived when send() returns, or may be looked at later.
  virtual bool delivers_at_once() const = 0;
  // Copies packets over, one after the other. Their payload may lie in memory of the user's, which
  // may not be there any more. How many have gone: the next has not, for this reason or for want of
  // room.
  virtual std::size_t send_short(std::span<const ShortPacket> packets) = 0;
  // Takes over one whose payload, in memory of the user's that this key grants, stays there until
  // it is fetched or recalled. False: it cannot be done so, or there is no room.
  virtual bool lend(const ShortPacket& packet, std::uint32_t qpn, std::uint32_t lkey) = 0;
  // The same of an answer to a READ, whose payload is copied over where it is short.
  virtual bool send_answer(const WholeAnswer& packet, std::uint32_t qpn, std::uint32_t rkey) = 0;
  // The same of an acknowledgement. False: there is no room.
  virtual bool send_acknowledge(const PlainAcknowledge& packet) = 0;
  // Takes a packet over. A payload that lies in pieces may be fetched until it is recalled.
  virtual void send(const LocalPacket& packet) = 0;
  // Asked now and then while it has no room. If it has taken nothing since it was asked last, what
  // waits for it goes without it.
  virtual void give_up_if_still() {}
};

// Those of an adapter.
class LocalPaths {
 public:
  virtual ~LocalPaths() = default;

  // Between these two addresses; null if there is none.
  virtual LocalPath* path_to(const Gid& own, const Gid& peer) = 0;
  // These payloads of the queue pair are nobody's business any more, on whichever path they left:
  // returns when nobody is at them.
  virtual void recall(std::uint32_t qpn, LentPayloads which) = 0;
  // What this key gave access to may change hands: returns when nobody is at it.
  // True: packets were taken back of which it is still to be said that they were refused.
  virtual bool revoke(std::uint32_t key_index) = 0;
  // There are packets that have come and were not looked at yet.
  virtual bool has_unread() const { return false; }
};

}  // namespace softhca
