// What a packet's ICRC and a receiver's GRH need to know of the IP and UDP headers around it.
#pragma once

#include <cstdint>

#include "vocabulary/gid.hpp"

namespace softhca {

inline constexpr std::uint16_t kRoceUdpPort = 4791;

// Packets that a sender of our kind gives the kernel as one train, which it numbers from 0.
inline constexpr std::uint16_t kMaxTrainPackets = 64;

// Of a traffic class: the ECN field (RFC 3168).
inline constexpr std::uint8_t kEcnBits = 3;
inline constexpr std::uint8_t kEcnCapable = 2;
inline constexpr std::uint8_t kCongestionExperienced = 3;

// Of a whole number of the units that it is copied by: where the last would overlap the one before,
// who reads a fresh copy waits until both are written.
struct alignas(16) Route {
  Gid source;
  Gid destination;
  std::uint16_t udp_source_port = 0;
  std::uint16_t udp_destination_port = kRoceUdpPort;
  // IPv4 identification. Our own packets carry 0, or their place in a train; a receiver without a
  // raw socket does not learn the peer's, and assumes the same.
  std::uint16_t identification = 0;
  std::uint8_t traffic_class = 0;  // IPv4 TOS or IPv6 traffic class, ECN bits included.
  std::uint8_t hop_limit = 64;
  std::uint32_t flow_label = 0;  // 20 bits, IPv6 only.

  // The addresses of a route are of one family.
  bool is_ipv4() const { return destination.is_ipv4(); }

  friend bool operator==(const Route&, const Route&) = default;
};

}  // namespace softhca
