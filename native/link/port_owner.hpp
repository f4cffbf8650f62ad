// Who holds a UDP port that could not be bound, in words for the user.
#pragma once

#include <cstdint>
#include <string>

#include "vocabulary/gid.hpp"

namespace softhca {

// One sentence or two: who holds `port` on `gid` or on every address, and what to do. Reads
// /proc/net/udp, /proc/net/udp6, /sys/module and, where allowed, /proc/PID/fd.
std::string explain_port_owner(const Gid& gid, std::uint16_t port);

}  // namespace softhca
