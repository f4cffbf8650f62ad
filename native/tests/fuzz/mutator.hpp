// Packets that are nearly right: made from the state of the queue pair that they attack, then bent.
#pragma once

#include <cstdint>
#include <vector>

#include "fuzz/victim.hpp"
#include "wire/packet.hpp"

namespace softhca::fuzz {

// Writes one packet for `line` into `out`, BTH to ICRC; most carry a good ICRC.
void make_packet(Victim& victim, const Line& line, Route& route, std::vector<std::uint8_t>& out);

}  // namespace softhca::fuzz
