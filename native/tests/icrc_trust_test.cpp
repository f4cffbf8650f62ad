// Who is held to the full ICRC (wire.md's section on identifications that cannot be seen).

#include "adapter/icrc_trust.hpp"

#include "tests/check.hpp"

namespace softhca::testing {
namespace {

constexpr std::uint8_t kOurs[4] = {10, 0, 0, 1};
constexpr std::uint8_t kForeign[4] = {10, 0, 0, 2};
constexpr IcrcVerdict kZero{true, false, 0, true};
constexpr IcrcVerdict kSolved{true, true, 77, true};
constexpr IcrcVerdict kBad{};

TEST("icrc trust: a peer of our kind is believed nothing but identification 0") {
  IcrcTrust trust;
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
  IcrcTrust trust;
  const Gid peer = Gid::from_ipv4(kForeign);
  for (int round = 0; round < 100; ++round) {
    CHECK(trust.accept(peer, kSolved));
    CHECK(trust.accept(peer, kZero));
    CHECK(trust.accept(peer, kSolved));
    CHECK(!trust.accept(peer, kBad));
  }
}

TEST("icrc trust: another stack may take the address over") {
  IcrcTrust trust;
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

}  // namespace
}  // namespace softhca::testing
