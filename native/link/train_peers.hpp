// Who is sent trains over IPv4 (docs/decisions/0017-trains.md). Each packet of one has an
// identification of its own, which its ICRC covers. Adapters of our kind solve for it, kernels and
// NICs see it. An ordinary socket does not: that it is 0 is all that a program behind one can
// suppose, and behind the first packet of a train it would find nothing but wrong ICRCs.
#pragma once

#include <array>
#include <cstdint>

#include "vocabulary/bytes.hpp"
#include "vocabulary/gid.hpp"
#include "vocabulary/own_ports.hpp"
#include "vocabulary/route.hpp"

namespace softhca {

class TrainPeers {
 public:
  // A datagram has come on `route`. What a peer did last is what counts, from one port to the next.
  void heard(const Route& route) {
    if (route.udp_source_port == last_port_ && route.source == last_) return;
    last_ = route.source;
    last_port_ = route.udp_source_port;
    if (!route.source.is_ipv4()) return;
    std::uint32_t& known = place_of(route.source);
    const std::uint32_t address = load_be32(route.source.ipv4());
    if (is_own_port(route.source, route.udp_source_port)) {
      known = address;
    } else if (known == address) {
      known = kNobody;
    }
  }

  // What this peer sends has identifications of its own: no ordinary socket does that.
  void numbers_packets(const Gid& peer) {
    if (peer.is_ipv4()) place_of(peer) = load_be32(peer.ipv4());
  }

  // Who has not been heard takes none. IPv6 has no identification.
  bool take(const Gid& peer) { return !peer.is_ipv4() || place_of(peer) == load_be32(peer.ipv4()); }

 private:
  static constexpr int kPlaceBits = 10;
  static constexpr std::uint32_t kNobody = 0;  // 0.0.0.0 is no source of packets.

  // Of two peers with one place the one that was heard last takes trains.
  std::uint32_t& place_of(const Gid& peer) {
    return peers_[load_be32(peer.ipv4()) * 0x9e3779b1u >> (32 - kPlaceBits)];
  }

  std::array<std::uint32_t, 1u << kPlaceBits> peers_{};
  // Whoever was heard last is heard again, most often.
  Gid last_;
  std::uint16_t last_port_ = 0;
};

}  // namespace softhca
