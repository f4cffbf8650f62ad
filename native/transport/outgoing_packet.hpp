// What a queue pair hands to whoever sends packets.
#pragma once

#include <cstdint>

#include "vocabulary/bytes.hpp"
#include "vocabulary/route.hpp"
#include "vocabulary/time.hpp"

namespace softhca {

// A packet to send: `datagram` is BTH to ICRC, lying in the buffer that next_packet() was given.
struct OutgoingPacket {
  Route route;
  ByteView datagram;
  std::uint32_t qpn = 0;
  bool has_wr = false;
  std::uint64_t wr_id = 0;
  bool retransmitted = false;
};

}  // namespace softhca
