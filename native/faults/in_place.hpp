// What rules send back in the place of a queue pair, on simulated links and on real ones.
#pragma once

#include <cstdint>
#include <vector>

#include "vocabulary/bytes.hpp"
#include "vocabulary/route.hpp"

namespace softhca {

// The queue pair that a packet is for, as far as an answer in its place needs it.
struct Addressee {
  std::uint32_t peer_qpn = 0;
  std::uint32_t expected_psn = 0;  // Of the next request.
  std::uint16_t udp_source_port = 0;
};

struct PacketInPlace {
  Route route;
  std::vector<std::uint8_t> bytes;
};

// A NAK acknowledges what is before it: only the request that is due can be refused.
bool can_be_refused(ByteView request, const Addressee& addressee);

// An acknowledgement with this syndrome, of the request that came with `route`.
PacketInPlace refusal_of(const Route& route, ByteView request, std::uint8_t syndrome,
                         const Addressee& addressee);

// A congestion notification for a packet that came with `route` (IBTA Vol 1, A17.9.3).
PacketInPlace notification_of(const Route& route, ByteView packet, const Addressee& addressee);

}  // namespace softhca
