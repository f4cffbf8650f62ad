// AETH syndromes, RNR timer codes and the local ACK timeout (IBTA Vol 1, 9.7.5.2; tables 45 to 47).
#pragma once

#include <cstdint>

namespace softhca {

inline constexpr std::uint8_t kSyndromeAck = 0x1f;  // ACK without end-to-end credits.
inline constexpr std::uint8_t kSyndromeRnrNak = 0x20;
inline constexpr std::uint8_t kSyndromeNak = 0x60;

enum class NakCode : std::uint8_t {
  PSN_SEQUENCE_ERROR = 0,
  INVALID_REQUEST = 1,
  REMOTE_ACCESS_ERROR = 2,
  REMOTE_OPERATIONAL_ERROR = 3,
  INVALID_RD_REQUEST = 4,  // Of reliable datagrams alone.
};

enum class SyndromeKind : std::uint8_t { ACK, RNR_NAK, NAK, RESERVED };

inline constexpr SyndromeKind syndrome_kind(std::uint8_t syndrome) {
  switch (syndrome >> 5) {
    case 0:
      return SyndromeKind::ACK;
    case 1:
      return SyndromeKind::RNR_NAK;
    case 3:
      return (syndrome & 0x1f) <= 4 ? SyndromeKind::NAK : SyndromeKind::RESERVED;
    default:
      return SyndromeKind::RESERVED;
  }
}

// Delay that an RNR NAK timer code (0 to 31) asks for. Code 0 is the longest.
std::uint64_t rnr_delay_ns(std::uint8_t timer_code);

// 4.096 us x 2^code; 0 for code 0, which means no timeout.
inline constexpr std::uint64_t ack_timeout_ns(std::uint8_t timeout_code) {
  return timeout_code == 0 ? 0 : std::uint64_t{4096} << timeout_code;
}

}  // namespace softhca
