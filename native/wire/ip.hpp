// IP, UDP and Ethernet headers: synthesised for captures and for the GRH that a UD receiver gets,
// parsed for `dump`.
#pragma once

#include <cstdint>

#include "vocabulary/bytes.hpp"
#include "vocabulary/route.hpp"
#include "wire/packet.hpp"

namespace softhca {

// Writes the IPv4 (20 bytes, header checksum included) or IPv6 (40 bytes) header and the UDP header
// (8 bytes, checksum 0) that carry `datagram_bytes` of UDP payload; returns 28 or 48. `out` must
// hold 48 bytes.
std::size_t encode_ip_udp(const Route& route, std::size_t datagram_bytes, ByteSpan out);

// Puts the UDP checksum into headers that encode_ip_udp wrote. RoCEv2 needs none, but over IPv6
// decoders call 0 an error, and a kernel fills it in. The ICRC does not cover it.
void store_udp_checksum(ByteSpan ip_udp_headers, ByteView datagram);

// The 40 bytes that stand in front of a UD payload (IBTA Annex A17.4.5.1): the IPv6 header; or 20
// bytes of zero and the IPv4 header.
void encode_grh(const Route& route, std::size_t datagram_bytes, std::uint8_t* out_40_bytes);

struct IpUdpView {
  Route route;
  ByteView datagram;  // UDP payload.
  bool dont_fragment = true;
  // Captures made before a NIC fills it in may lack it. IPv6 has none, which is good.
  bool header_checksum_good = true;
};

// Parses an IP packet (first byte is the version nibble). False if it is not UDP, is a fragment, or
// is cut short. Bytes behind the IP packet, as Ethernet's padding, are left out.
bool parse_ip_udp(ByteView ip_packet, IpUdpView& view);

}  // namespace softhca
