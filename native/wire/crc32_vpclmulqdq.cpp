// Four 512-bit registers, 256 bytes a step.
#include "wire/crc32_routines.hpp"

#if defined(__x86_64__)

// gcc 12 takes the deliberately undefined registers in its own headers for mistakes (its bug
// 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "wire/crc32_fold.hpp"

#define SOFTHCA_TARGET_VPCLMULQDQ __attribute__((target("pclmul,sse4.1,avx512f,vpclmulqdq")))

namespace softhca {
namespace {

using namespace crc32_fold;

constexpr FoldConstants kFold2048 = fold_constants(2048);

// These move the first two lanes onto the last one; kFold128 moves the third.
constexpr FoldConstants kFold384 = fold_constants(384);
constexpr FoldConstants kFold256 = fold_constants(256);

SOFTHCA_TARGET_VPCLMULQDQ inline __m512i load_512(const std::uint8_t* at) {
  return _mm512_loadu_si512(at);
}

SOFTHCA_TARGET_VPCLMULQDQ inline __m512i broadcast_512(const FoldConstants& constants) {
  return _mm512_broadcast_i32x4(broadcast(constants));
}

SOFTHCA_TARGET_VPCLMULQDQ inline __m512i fold_512(__m512i state, __m512i constants, __m512i next) {
  constexpr int kXorOfThree = 0x96;
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(state, constants, 0x00),
                                   _mm512_clmulepi64_epi128(state, constants, 0x11), next,
                                   kXorOfThree);
}

// Sum of the four lanes, each moved to the place of the last. The last has zeros for constants and
// enters as what the products are added to.
SOFTHCA_TARGET_VPCLMULQDQ inline __m128i fold_lanes(__m512i state) {
  const __m512i constants = _mm512_set_epi64(
      0, 0, static_cast<long long>(kFold128.high), static_cast<long long>(kFold128.low),
      static_cast<long long>(kFold256.high), static_cast<long long>(kFold256.low),
      static_cast<long long>(kFold384.high), static_cast<long long>(kFold384.low));
  const __m512i moved = fold_512(state, constants, _mm512_maskz_mov_epi64(0xc0, state));
  const __m256i half =
      _mm256_xor_si256(_mm512_castsi512_si256(moved), _mm512_extracti64x4_epi64(moved, 1));
  return _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

// Four registers side by side, each moved to the place of the last.
SOFTHCA_TARGET_VPCLMULQDQ inline __m512i join(__m512i state, __m512i state_1, __m512i state_2,
                                              __m512i state_3) {
  const __m512i by_512 = broadcast_512(kFold512);
  state = fold_512(state, by_512, state_1);
  state = fold_512(state, by_512, state_2);
  return fold_512(state, by_512, state_3);
}

}  // namespace

SOFTHCA_TARGET_VPCLMULQDQ std::uint32_t crc32_by_vpclmulqdq(std::uint32_t crc, ByteView bytes) {
  const std::uint8_t* at = bytes.data();
  std::size_t left = bytes.size();
  if (left < 64) return crc32_by_pclmulqdq(crc, bytes);

  __m512i state = _mm512_xor_si512(
      load_512(at), _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(~crc))));
  const __m512i by_512 = broadcast_512(kFold512);
  if (left >= 256) {
    __m512i state_1 = load_512(at + 64);
    __m512i state_2 = load_512(at + 128);
    __m512i state_3 = load_512(at + 192);
    const __m512i by_2048 = broadcast_512(kFold2048);
    for (at += 256, left -= 256; left >= 256; at += 256, left -= 256) {
      state = fold_512(state, by_2048, load_512(at));
      state_1 = fold_512(state_1, by_2048, load_512(at + 64));
      state_2 = fold_512(state_2, by_2048, load_512(at + 128));
      state_3 = fold_512(state_3, by_2048, load_512(at + 192));
    }
    state = join(state, state_1, state_2, state_3);
  } else {
    at += 64;
    left -= 64;
  }
  for (; left >= 64; at += 64, left -= 64) state = fold_512(state, by_512, load_512(at));
  return finish(fold_lanes(state), at, left);
}

const FoldFactors vpclmulqdq_factors = kFold2048;

SOFTHCA_TARGET_VPCLMULQDQ std::uint32_t of_lanes_by_vpclmulqdq(const FoldLanes& lanes) {
  const std::uint8_t* const at = lanes.bytes;
  const __m512i state =
      join(load_512(at), load_512(at + 64), load_512(at + 128), load_512(at + 192));
  return ~reduce(fold_lanes(state));
}

}  // namespace softhca

#endif
