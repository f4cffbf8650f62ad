// Who is sent trains over IPv4 (docs/decisions/0017-trains.md). Each packet of one has an
// identification of its own, which its ICRC covers. Kernels, NICs and adapters of our kind see it,
// and send from ports that carry entropy, 0xC000 to 0xFFFF. A program that sends from its port 4791
// has a single socket, which tells it no identification: that it is 0 is all it can suppose, and
// behind the first packet of a train it would find nothing but wrong ICRCs.
#pragma once

#include <array>
#include <cstdint>

#include "vocabulary/bytes.hpp"
#include "vocabulary/gid.hpp"
#include "vocabulary/route.hpp"

namespace softhca {

class TrainPeers {
 public:
  static constexpr std::uint16_t kFirstSourcePort = 0xc000;  // IBTA Annex A17.4.5.2.

  // A datagram has come on `route`. What a peer did last is what counts.
  void heard(const Route& route) {
    if (!route.source.is_ipv4()) return;
    const std::uint32_t address = load_be32(route.source.ipv4());
    std::uint32_t& known = peers_[place_of(address)];
    if (route.udp_source_port >= kFirstSourcePort) {
      known = address;
    } else if (known == address) {
      known = kNobody;
    }
  }

  // Who has not been heard takes none. IPv6 has no identification.
  bool take(const Gid& peer) const {
    if (!peer.is_ipv4()) return true;
    const std::uint32_t address = load_be32(peer.ipv4());
    return peers_[place_of(address)] == address;
  }

 private:
  static constexpr int kPlaceBits = 10;
  static constexpr std::uint32_t kNobody = 0;  // 0.0.0.0 is no source of packets.

  // Of two peers with one place the one that was heard last takes trains.
  static std::uint32_t place_of(std::uint32_t address) {
    return address * 0x9e3779b1u >> (32 - kPlaceBits);
  }

  std::array<std::uint32_t, 1u << kPlaceBits> peers_{};
};

}  // namespace softhca
