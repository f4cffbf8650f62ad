// ICRCs of packets that follow others of their kind: what their headers and the places of a train
// have in common is summed once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "vocabulary/bytes.hpp"
#include "vocabulary/route.hpp"
#include "wire/icrc.hpp"

namespace softhca {

// IdentificationChange of every place in a train, for the lengths that came last.
class TrainChanges {
 public:
  std::uint32_t of(std::size_t datagram_bytes, std::size_t place);

 private:
  struct Length {
    std::size_t datagram_bytes = 0;
    std::array<std::uint32_t, kMaxTrainPackets> by_place{};
  };
  std::array<Length, 8> lengths_{};
};

// What icrc_of(), append_icrc() and check_icrc() give, sooner. Not thread-safe.
class IcrcMemory {
 public:
  std::uint32_t icrc_of(const Route& route, ByteView transport);
  void append(const Route& route, ByteSpan transport);
  // For who sums the payload while it comes: the CRC-32 of what is before it. `transport`: as for
  // append(), with its first `header_bytes` in place. Then the same as append(), where `crc`
  // continues from that to the end.
  std::uint32_t before_payload(const Route& route, ByteView transport, std::size_t header_bytes);
  void append_summed(const Route& route, ByteSpan transport, std::uint32_t crc);
  IcrcVerdict check(const Route& route, ByteView datagram, IcrcLevel level);

 private:
  // The headers up to the middle of the BTH, where the bytes begin that no two packets share.
  struct Start {
    Gid source;
    Gid destination;
    std::uint32_t ports = 0;
    std::size_t transport_bytes = 0;  // 0: nothing is known.
    std::uint64_t bth = 0;
    std::uint32_t crc = 0;
  };

  // Of the packet with the identification 0. Precondition: it has a BTH.
  std::uint32_t start_of(const Route& route, ByteView transport);
  // With the identification of `route`, which is below kMaxTrainPackets.
  std::uint32_t identified(std::uint32_t crc, const Route& route, std::size_t transport_bytes);

  std::array<Start, 16> starts_{};
  TrainChanges changes_;
};

}  // namespace softhca
