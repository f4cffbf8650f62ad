// The invariant CRC of a RoCEv2 packet (IBTA Vol 1, 7.8.1; Annex A17.3.3), made and checked without
// a raw socket.
#pragma once

#include <cstdint>

#include "vocabulary/bytes.hpp"
#include "vocabulary/route.hpp"

namespace softhca {

// How much a receiver that cannot see the IPv4 header demands.
enum class IcrcLevel : std::uint8_t {
  STRICT = 0,  // The identification is that of the route; all 32 bits are checked.
  SOLVE =
      1,  // IPv4: any identification, with or without DF, that explains the difference is accepted.
  OFF = 2,  // Nothing is checked.
};

struct IcrcVerdict {
  bool good = false;
  bool solved = false;               // The identification was solved for, not assumed.
  std::uint16_t identification = 0;  // IPv4 identification that explains the ICRC.
  bool dont_fragment = true;
};

// ICRC of `transport` (BTH to pad, without the ICRC itself) as it travels on `route`, as the
// register value; the wire carries it least significant byte first. IPv4 packets are taken to have
// DF set and no options.
std::uint32_t icrc_of(const Route& route, ByteView transport);

// Of the headers of `route` and of `start`, the first bytes (five or more) of `transport_bytes`.
// The CRC-32 of the other bytes, continued from it, is the ICRC.
std::uint32_t icrc_of_start(const Route& route, ByteView start, std::size_t transport_bytes);

// Appends the ICRC: writes four bytes at `transport.data() + transport.size()`, which must be
// there.
void append_icrc(const Route& route, ByteSpan transport);

// What the ICRC of an IPv4 packet changes by, as a register value, when its identification becomes
// another one instead of 0. For a train of packets of one length, most of the work is done once.
class IdentificationChange {
 public:
  // Of packets of `datagram_bytes`, ICRC included.
  explicit IdentificationChange(std::size_t datagram_bytes);
  std::uint32_t operator()(std::uint16_t identification) const;

 private:
  std::uint32_t power_;
};

// Checks a datagram that ends in an ICRC. A datagram of fewer than sixteen bytes is never good, nor
// is one longer than UDP over IPv4 carries. SOLVE starts from the identification of `route`; for
// IPv6, which has none, it is STRICT.
IcrcVerdict check_icrc(const Route& route, ByteView datagram, IcrcLevel level);

// Whether `datagram` is of a length that an ICRC is looked for in; and the verdict, not of level
// OFF, where `icrc` is what it should carry.
bool may_hold_icrc(ByteView datagram);
IcrcVerdict judge_icrc(const Route& route, ByteView datagram, IcrcLevel level, std::uint32_t icrc);

}  // namespace softhca
