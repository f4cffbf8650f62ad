// Where a queue pair puts the packet that it sends: into a datagram for the wire, or into a packet
// for an adapter of this host.
#pragma once

#include <algorithm>
#include <cstdint>

#include "transport/local_packet.hpp"
#include "transport/outgoing_packet.hpp"
#include "vocabulary/bytes.hpp"

namespace softhca {

struct Outlet {
  ByteSpan buffer;  // Room for a whole datagram, or for a payload of kLocalBroughtBytes.
  OutgoingPacket* wire = nullptr;
  LocalPacket* local = nullptr;  // One of the two.
  // An acknowledgement alone may wait for a request to go with; `held_back` says that one does.
  bool patient = false;
  bool held_back = false;

  // Packets of a message that may leave as one.
  std::uint32_t most_packets(std::uint32_t mtu) const {
    return local == nullptr ? 1 : std::max<std::uint32_t>(kLocalPacketBytes / mtu, 1);
  }
  // The same for those that bring their payload with them.
  std::uint32_t most_brought(std::uint32_t mtu) const {
    return local == nullptr ? 1 : std::max<std::uint32_t>(kLocalBroughtBytes / mtu, 1);
  }
};

}  // namespace softhca
