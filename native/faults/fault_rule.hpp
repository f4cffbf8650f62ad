// A rule about packets: which ones, when, and what happens to them.
#pragma once

#include <bitset>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "vocabulary/bytes.hpp"
#include "vocabulary/gid.hpp"
#include "vocabulary/random.hpp"
#include "vocabulary/route.hpp"
#include "vocabulary/time.hpp"

namespace softhca {

enum class FaultAction : std::uint8_t {
  DROP,
  DUPLICATE,
  DELAY,
  REORDER,
  CORRUPT,
  TRUNCATE,
  MARK,    // Congestion experienced.
  CNP,     // The source is told of congestion.
  ANSWER,  // Lost, and a NAK answers in the responder's place.
  TELL,    // Nothing happens to the packet: whoever asked is told that it passed.
  SCRIPT,
};
const char* fault_action_name(FaultAction action);

enum class CorruptPart : std::uint8_t { ANYWHERE, HEADERS, PAYLOAD, ICRC };

// Hosts of a fabric by number, whatever addresses they have by now; -1 where none is known.
struct HostPair {
  int source = -1;
  int destination = -1;
};

// A packet as rules see it. `link` is -1 where there is only one.
struct PacketSight {
  const Route& route;
  ByteView datagram;
  std::uint64_t now_ns = 0;
  int link = -1;
  bool sending = true;  // At a real socket: it leaves, or it came.
  HostPair hosts;
};

// All conditions that are given must hold.
struct FaultMatch {
  std::bitset<256> opcodes = std::bitset<256>().set();
  // Addresses of the one that sent it, and of whom it goes to; empty: anybody's.
  std::vector<Gid> sources;
  std::vector<Gid> destinations;
  HostPair hosts;         // -1: anybody.
  std::int64_t qpn = -1;  // Destination.
  std::uint32_t first_psn = 0;
  std::uint32_t last_psn = 0xffffff;
  std::uint32_t min_bytes = 0;  // Of the datagram, BTH to ICRC.
  std::uint32_t max_bytes = ~std::uint32_t{0};
  std::uint64_t from_ns = 0;
  std::uint64_t until_ns = kNever;
  int link = -1;
  int direction = 0;  // 1: sent, 2: received, 0: both; where there are sockets.

  bool operator()(const PacketSight& packet) const;
};

// What a script leaves of a packet: datagrams and when they go on.
struct ScriptedDatagram {
  std::vector<std::uint8_t> bytes;
  std::uint64_t delay_ns = 0;
};
using Predicate = std::function<bool(const PacketSight&)>;
// False: the packet is as it was.
using Script = std::function<bool(const PacketSight&, std::vector<ScriptedDatagram>&)>;

struct FaultRule {
  std::string name;  // What traces call it.
  FaultAction action = FaultAction::DROP;
  FaultMatch match;
  Predicate predicate;
  Script script;
  // Strikes the matches of these numbers and no other, whatever else is said: to run again with
  // fewer strikes.
  bool has_only = false;
  std::vector<std::uint64_t> only;
  double probability = 1;
  std::vector<std::uint64_t> nth;   // Which matches, from 1; empty: all.
  std::uint64_t every = 0;          // Each so-many-th match; 0: all.
  std::uint64_t times = kNever;     // How often at most.
  std::uint64_t delay_ns = 0;       // DELAY, and of what DUPLICATE adds.
  std::uint64_t most_delay_ns = 0;  // Drawn between the two, if it is more.
  std::uint32_t count = 1;  // DUPLICATE: copies; REORDER: overtakers at most; TRUNCATE: bytes.
  CorruptPart part = CorruptPart::ANYWHERE;
  bool mend_icrc = false;     // CORRUPT: the ICRC fits again, so that the damage arrives.
  std::uint8_t syndrome = 0;  // ANSWER.
  std::uint64_t seed = 1;
};

}  // namespace softhca
