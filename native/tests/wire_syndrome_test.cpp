#include "tests/check.hpp"
#include "wire/syndrome.hpp"

namespace softhca {
namespace {

TEST("syndrome: kinds (IBTA 9.7.5.2)") {
  CHECK_EQ(syndrome_kind(0x00), SyndromeKind::ACK);
  CHECK_EQ(syndrome_kind(kSyndromeAck), SyndromeKind::ACK);
  CHECK_EQ(syndrome_kind(kSyndromeRnrNak), SyndromeKind::RNR_NAK);
  CHECK_EQ(syndrome_kind(0x3f), SyndromeKind::RNR_NAK);
  for (unsigned code = 0; code <= 4; ++code) {
    CHECK_EQ(syndrome_kind(static_cast<std::uint8_t>(kSyndromeNak | code)), SyndromeKind::NAK);
  }
  for (unsigned code = 5; code < 32; ++code) {
    CHECK_EQ(syndrome_kind(static_cast<std::uint8_t>(kSyndromeNak | code)), SyndromeKind::RESERVED);
  }
  for (unsigned syndrome = 0x40; syndrome < 0x60; ++syndrome) {
    CHECK_EQ(syndrome_kind(static_cast<std::uint8_t>(syndrome)), SyndromeKind::RESERVED);
  }
  for (unsigned syndrome = 0x80; syndrome < 0x100; ++syndrome) {
    CHECK_EQ(syndrome_kind(static_cast<std::uint8_t>(syndrome)), SyndromeKind::RESERVED);
  }
}

TEST("syndrome: RNR delays (table 45)") {
  CHECK_EQ(rnr_delay_ns(0), 655'360'000u);
  CHECK_EQ(rnr_delay_ns(1), 10'000u);
  CHECK_EQ(rnr_delay_ns(12), 640'000u);
  CHECK_EQ(rnr_delay_ns(14), 1'280'000u);
  CHECK_EQ(rnr_delay_ns(17), 3'840'000u);
  CHECK_EQ(rnr_delay_ns(31), 491'520'000u);
  // From code 2 on, every second code doubles.
  for (std::uint8_t code = 2; code < 30; ++code) {
    CHECK_EQ(rnr_delay_ns(static_cast<std::uint8_t>(code + 2)), 2 * rnr_delay_ns(code));
  }
  // Only five bits count.
  CHECK_EQ(rnr_delay_ns(kSyndromeRnrNak | 5), rnr_delay_ns(5));
}

TEST("syndrome: the local ACK timeout") {
  CHECK_EQ(ack_timeout_ns(0), 0u);
  CHECK_EQ(ack_timeout_ns(1), 8192u);
  CHECK_EQ(ack_timeout_ns(14), 67'108'864u);
  CHECK_EQ(ack_timeout_ns(31), 4096ull << 31);
}

}  // namespace
}  // namespace softhca
