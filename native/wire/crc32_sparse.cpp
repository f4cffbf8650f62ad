// Eight bytes a step by shifts alone: no table to look up, no instruction that few processors have.
//
// A multiple of the generator may be added to the bytes without changing what they leave. One of
// them has five terms only, the highest x^300. Added so that its highest term meets a bit of the
// word at hand, it takes that bit away and changes four bits behind it; of the whole word, that is
// four shifted copies of it, and the word is gone. What is left at the end are the last words,
// which the table sums.
//
// The idea is S. Russell's ("Chorba: A novel CRC32 implementation", 2024). That no shorter multiple
// has five terms follows from P. Koopman's Hamming distances ("32-Bit Cyclic Redundancy Codes for
// Internet Applications", 2002).
#include <array>
#include <cstring>

#include "wire/crc32.hpp"
#include "wire/crc32_polynomial.hpp"
#include "wire/crc32_routines.hpp"

namespace softhca {
namespace {

constexpr std::array<unsigned, 5> kTerms = {300, 155, 117, 89, 0};

constexpr bool is_multiple() {
  std::uint32_t rest = 0;
  for (const unsigned term : kTerms) rest ^= crc32_polynomial::power_of_x(term);
  return rest == 0;
}
static_assert(is_multiple());

// How far behind a bit the others are: a register's lowest bit is the first.
constexpr unsigned behind(std::size_t term) { return kTerms[0] - kTerms[term]; }
constexpr unsigned kWordBits = 64;
constexpr std::size_t kWordBytes = 8;
// Words that a word changes.
constexpr std::size_t kChanged = 5;
static_assert(behind(1) / kWordBits == 2 && behind(2) / kWordBits == 2 &&
              behind(3) / kWordBits == 3 && behind(4) / kWordBits == 4 &&
              behind(4) % kWordBits != 0);
constexpr std::size_t kRoundBytes = kChanged * kWordBytes;
// What is shorter is the table's, which needs no end.
constexpr std::size_t kLeastBytes = 3 * kRoundBytes;

std::uint64_t load(const std::uint8_t* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// The part of a copy that stays within the word where it begins, and the part in the one behind.
template <std::size_t kTerm>
std::uint64_t near(std::uint64_t word) {
  return word << behind(kTerm) % kWordBits;
}
template <std::size_t kTerm>
std::uint64_t far(std::uint64_t word) {
  return word >> (kWordBits - behind(kTerm) % kWordBits);
}

// Takes a word away. `first` is what others have changed of it, and is what it changes of the fifth
// behind it afterwards; the others are of the second, third and fourth.
[[gnu::always_inline]] inline void take(std::uint64_t word, std::uint64_t& first,
                                        std::uint64_t& second, std::uint64_t& third,
                                        std::uint64_t& fourth) {
  word ^= first;
  second ^= near<1>(word) ^ near<2>(word);
  third ^= far<1>(word) ^ far<2>(word) ^ near<3>(word);
  fourth ^= far<3>(word) ^ near<4>(word);
  first = far<4>(word);
}

}  // namespace

std::uint32_t crc32_by_sparse_multiple(std::uint32_t crc, ByteView bytes) {
  const std::uint8_t* at = bytes.data();
  std::size_t left = bytes.size();
  if (left < kLeastBytes) return crc32_by_table(crc, bytes);
  std::uint64_t a = ~crc;  // The register is added to the first bytes.
  std::uint64_t b = 0;
  std::uint64_t c = 0;
  std::uint64_t d = 0;
  std::uint64_t e = 0;
  for (; left >= 2 * kRoundBytes; left -= kRoundBytes, at += kRoundBytes) {
    take(load(at), a, c, d, e);
    take(load(at + kWordBytes), b, d, e, a);
    take(load(at + 2 * kWordBytes), c, e, a, b);
    take(load(at + 3 * kWordBytes), d, a, b, c);
    take(load(at + 4 * kWordBytes), e, b, c, d);
  }
  const std::array<std::uint64_t, kChanged> changes = {a, b, c, d, e};
  std::array<std::uint8_t, 2 * kRoundBytes> rest;
  std::memcpy(rest.data(), at, left);
  for (std::size_t i = 0; i < kChanged; ++i) {
    const std::uint64_t word = load(rest.data() + i * kWordBytes) ^ changes[i];
    std::memcpy(rest.data() + i * kWordBytes, &word, sizeof word);
  }
  return crc32_by_table(~std::uint32_t{0}, ByteView(rest).first(left));
}

}  // namespace softhca
