// Four 128-bit registers, 64 bytes a step.
#include "wire/crc32_routines.hpp"

#if defined(__x86_64__)

#include "wire/crc32.hpp"
#include "wire/crc32_fold.hpp"

namespace softhca {

SOFTHCA_TARGET_PCLMULQDQ std::uint32_t crc32_by_pclmulqdq(std::uint32_t crc, ByteView bytes) {
  using namespace crc32_fold;
  const std::uint8_t* at = bytes.data();
  std::size_t left = bytes.size();
  if (left < 16) return crc32_by_table(crc, bytes);

  __m128i state = _mm_xor_si128(load(at), _mm_cvtsi32_si128(static_cast<int>(~crc)));
  if (left < 64) return finish(state, at + 16, left - 16);

  __m128i state_1 = load(at + 16);
  __m128i state_2 = load(at + 32);
  __m128i state_3 = load(at + 48);
  const __m128i by_512 = broadcast(kFold512);
  for (at += 64, left -= 64; left >= 64; at += 64, left -= 64) {
    state = fold(state, by_512, load(at));
    state_1 = fold(state_1, by_512, load(at + 16));
    state_2 = fold(state_2, by_512, load(at + 32));
    state_3 = fold(state_3, by_512, load(at + 48));
  }
  const __m128i by_128 = broadcast(kFold128);
  state = fold(state, by_128, state_1);
  state = fold(state, by_128, state_2);
  state = fold(state, by_128, state_3);
  return finish(state, at, left);
}

}  // namespace softhca

#endif
