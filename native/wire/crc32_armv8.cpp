// Eight bytes an instruction: Armv8's CRC extension has Ethernet's polynomial.
#include "wire/crc32_routines.hpp"

#if defined(__aarch64__)

#include <arm_acle.h>

#include <cstring>

namespace softhca {

__attribute__((target("+crc"))) std::uint32_t crc32_by_armv8(std::uint32_t crc, ByteView bytes) {
  std::uint32_t state = ~crc;
  const std::uint8_t* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    std::uint64_t word;
    std::memcpy(&word, at, sizeof word);
    state = __crc32d(state, word);
  }
  for (; left > 0; --left, ++at) state = __crc32b(state, *at);
  return ~state;
}

}  // namespace softhca

#endif
