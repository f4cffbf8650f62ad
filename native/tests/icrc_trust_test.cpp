// Who is held to the full ICRC (wire.md's section on identifications that cannot be seen).

#include "adapter/icrc_trust.hpp"

#include <vector>

#include "tests/check.hpp"

namespace softhca::testing {
namespace {

constexpr std::uint8_t kOurs[4] = {10, 0, 0, 1};
constexpr std::uint8_t kForeign[4] = {10, 0, 0, 2};
constexpr IcrcVerdict kZero{true, false, 0, true};
constexpr IcrcVerdict kSolved{true, true, 77, true};
constexpr IcrcVerdict kBad{};

TEST("icrc trust: a peer of our kind is believed nothing but identification 0") {
  IcrcTrust trust(1);
  const Gid peer = Gid::from_ipv4(kOurs);
  CHECK(trust.accept(peer, kZero));
  CHECK(trust.accept(peer, kZero));
  for (int round = 0; round < 100; ++round) {
    CHECK(!trust.accept(peer, kSolved));
    CHECK(!trust.accept(peer, kBad));
    CHECK(trust.accept(peer, kZero));
  }
}

TEST(
    "icrc trust: a foreign stack's identifications are solved for, also when one happens to be 0") {
  IcrcTrust trust(1);
  const Gid peer = Gid::from_ipv4(kForeign);
  for (int round = 0; round < 100; ++round) {
    CHECK(trust.accept(peer, kSolved));
    CHECK(trust.accept(peer, kZero));
    CHECK(trust.accept(peer, kSolved));
    CHECK(!trust.accept(peer, kBad));
  }
}

TEST("icrc trust: another stack may take the address over") {
  IcrcTrust trust(1);
  const Gid peer = Gid::from_ipv4(kOurs);
  CHECK(trust.accept(peer, kZero));
  CHECK(trust.accept(peer, kZero));
  int refused = 0;
  while (!trust.accept(peer, kSolved)) {
    ++refused;
    CHECK(refused < 20);
  }
  CHECK(refused > 3);
  CHECK(trust.accept(peer, kSolved));
}

TEST("icrc trust: whoever forges packets of a foreign stack has no more of its own refused") {
  for (int forged = 1; forged <= 3; ++forged) {
    for (int own = 1; own <= 20; ++own) {
      IcrcTrust trust(1);
      const Gid peer = Gid::from_ipv4(kForeign);
      int sent = 2;
      int refused = 0;
      for (int i = 0; i < sent; ++i) CHECK(trust.accept(peer, kZero));
      for (int round = 0; round < 100; ++round) {
        for (int i = 0; i < own; ++i) refused += trust.accept(peer, kSolved) ? 0 : 1;
        for (int i = 0; i < forged; ++i) CHECK(trust.accept(peer, kZero));
        sent += forged;
      }
      CHECK(refused < sent + 8);
    }
  }
}

TEST("icrc trust: our kind is believed again where another stack has been") {
  IcrcTrust trust(1);
  const Gid peer = Gid::from_ipv4(kOurs);
  for (int packets = 0; packets < 2; ++packets) CHECK(trust.accept(peer, kZero));
  while (!trust.accept(peer, kSolved)) {
  }
  for (int packets = 0; packets < 1000; ++packets) CHECK(trust.accept(peer, kZero));
  CHECK(!trust.accept(peer, kSolved));
}

Gid numbered(std::uint32_t address) {
  const std::uint8_t bytes[4] = {10, static_cast<std::uint8_t>(address >> 16),
                                 static_cast<std::uint8_t>(address >> 8),
                                 static_cast<std::uint8_t>(address)};
  return Gid::from_ipv4(bytes);
}

// They can be found out for an adapter whose seed is known, and are of no use with another.
TEST("icrc trust: addresses that share a place do so in one adapter alone") {
  constexpr std::uint32_t kKnown = 4000;
  constexpr std::uint32_t kTried = 1u << 20;
  IcrcTrust known(1);
  IcrcTrust attacked(2);
  for (std::uint32_t i = 0; i < kKnown; ++i) known.accept(numbered(kTried + i), kZero);
  std::vector<Gid> chosen;
  const Gid first = numbered(kTried);
  for (std::uint32_t i = 0; i < kTried; ++i) {
    if (known.bucket(numbered(i)) == known.bucket(first)) chosen.push_back(numbered(i));
  }
  CHECK(chosen.size() > 50);
  for (const Gid& one : chosen) attacked.accept(one, kZero);
  for (const Gid& one : chosen) CHECK(attacked.sharing_with(one) < 12);
}

}  // namespace
}  // namespace softhca::testing
