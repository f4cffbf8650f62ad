// Folding of CRC-32 in 128-bit registers, shared by the PCLMULQDQ and VPCLMULQDQ routines.
//
// A register holds sixteen bytes of the message as loaded, so its bit i is the coefficient of
// x^(127-i): the low quadword is the more significant one. The product of two reflected 64-bit
// polynomials comes out one bit short of the register's end, that is, times x; each constant is
// therefore one power of x lower than the distance it stands for.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstdint>

#include "vocabulary/fold_lanes.hpp"
#include "wire/crc32_polynomial.hpp"

namespace softhca::crc32_fold {

#define SOFTHCA_TARGET_PCLMULQDQ __attribute__((target("pclmul,sse4.1")))

// x^exponent modulo the generator, as a reflected 64-bit polynomial.
constexpr std::uint64_t quadword_power(unsigned exponent) {
  return std::uint64_t{crc32_polynomial::power_of_x(exponent)} << 32;
}

// What multiplies the two quadwords of a register to move it `bit_count` bits ahead in the message.
using FoldConstants = FoldFactors;
constexpr FoldConstants fold_constants(unsigned bit_count) {
  return {quadword_power(bit_count + 64 - 1), quadword_power(bit_count - 1)};
}

inline constexpr FoldConstants kFold128 = fold_constants(128);
inline constexpr FoldConstants kFold512 = fold_constants(512);

SOFTHCA_TARGET_PCLMULQDQ inline __m128i load(const std::uint8_t* at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
}

SOFTHCA_TARGET_PCLMULQDQ inline __m128i broadcast(const FoldConstants& constants) {
  return _mm_set_epi64x(static_cast<long long>(constants.high),
                        static_cast<long long>(constants.low));
}

// `state` moved ahead by the distance of `constants`, plus what stands there.
SOFTHCA_TARGET_PCLMULQDQ inline __m128i fold(__m128i state, __m128i constants, __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(state, constants, 0x00);
  const __m128i high = _mm_clmulepi64_si128(state, constants, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

// Takes in the last 1 to 15 bytes, which end at `end`; the sixteen bytes before `end` must be
// readable. The state and the tail make 16 + tail_bytes bytes: the first tail_bytes of them fold
// into the remaining sixteen.
SOFTHCA_TARGET_PCLMULQDQ inline __m128i fold_tail(__m128i state, const std::uint8_t* end,
                                                  std::size_t tail_bytes) {
  // A window into this shifts a register by bytes; an index with bit 7 set yields zero.
  alignas(16) static constexpr std::uint8_t kShift[48] = {
      0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
      0x80, 0x80, 0x80, 0x80, 0,    1,    2,    3,    4,    5,    6,    7,
      8,    9,    10,   11,   12,   13,   14,   15,   0x80, 0x80, 0x80, 0x80,
      0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80};
  const __m128i to_end = load(kShift + tail_bytes);
  const __m128i to_begin = load(kShift + 16 + tail_bytes);
  const __m128i first = _mm_shuffle_epi8(state, to_end);
  // Where the shifted state has run out, to_begin has bit 7 set and the tail is taken.
  const __m128i rest = _mm_blendv_epi8(_mm_shuffle_epi8(state, to_begin), load(end - 16), to_begin);
  return fold(first, broadcast(kFold128), rest);
}

// The register that a CRC ends with: the state times x^32 modulo the generator.
SOFTHCA_TARGET_PCLMULQDQ inline std::uint32_t reduce(__m128i state) {
  // 128 bits to 96: the low quadword is 96 powers of x ahead, the high one 32.
  const __m128i fold_64 = _mm_cvtsi64_si128(static_cast<long long>(quadword_power(96 - 1)));
  const __m128i bits_96 = _mm_xor_si128(_mm_clmulepi64_si128(state, fold_64, 0x00),
                                        _mm_slli_si128(_mm_srli_si128(state, 8), 4));
  // 96 to 64: what is left in the low quadword is 64 powers of x ahead.
  const __m128i fold_32 = _mm_cvtsi64_si128(static_cast<long long>(quadword_power(64 - 1)));
  const __m128i bits_64 =
      _mm_srli_si128(_mm_xor_si128(_mm_clmulepi64_si128(bits_96, fold_32, 0x00), bits_96), 8);
  // 64 to 32 by Barrett: quotient = high half times x^64 / generator; 33-bit constants put each
  // product where the next step wants it.
  constexpr std::uint64_t kQuotient =
      crc32_polynomial::reflect(crc32_polynomial::x64_over_generator(), 33);
  constexpr std::uint64_t kGenerator =
      crc32_polynomial::reflect(std::uint64_t{1} << 32 | crc32_polynomial::kOrdinary, 33);
  const __m128i barrett =
      _mm_set_epi64x(static_cast<long long>(kGenerator), static_cast<long long>(kQuotient));
  const __m128i mask = _mm_cvtsi64_si128(0xffffffff);
  const __m128i quotient =
      _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(bits_64, mask), barrett, 0x00), mask);
  const __m128i multiple = _mm_clmulepi64_si128(quotient, barrett, 0x10);
  return static_cast<std::uint32_t>(_mm_extract_epi32(_mm_xor_si128(bits_64, multiple), 1));
}

// Finishes a message of which `state` is what was folded so far and `left` bytes at `at` remain; at
// least sixteen bytes stand before `at`.
SOFTHCA_TARGET_PCLMULQDQ inline std::uint32_t finish(__m128i state, const std::uint8_t* at,
                                                     std::size_t left) {
  const __m128i constants = broadcast(kFold128);
  for (; left >= 16; left -= 16, at += 16) state = fold(state, constants, load(at));
  if (left > 0) state = fold_tail(state, at + left, left);
  return ~reduce(state);
}

}  // namespace softhca::crc32_fold

#endif
