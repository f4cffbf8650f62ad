// From the MTU of an interface to the one of a port.
#pragma once

#include <cstdint>

namespace softhca {

// Largest path MTU (Mtu code) whose packets with all their headers fit an IP MTU. 256 at least.
std::uint8_t path_mtu_code(std::uint32_t ip_mtu_bytes, bool ipv4);

}  // namespace softhca
