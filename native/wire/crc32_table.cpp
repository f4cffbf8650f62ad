// Eight bytes a step, one table for each byte's position.
#include "wire/crc32.hpp"
#include "wire/crc32_polynomial.hpp"

namespace softhca {
namespace {

constexpr auto kTables = crc32_polynomial::build_byte_tables();

}  // namespace

std::uint32_t crc32_by_table(std::uint32_t crc, ByteView bytes) {
  std::uint32_t state = ~crc;
  const std::uint8_t* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    std::uint64_t word;
    std::memcpy(&word, at, sizeof word);
    word ^= state;
    state = kTables[7][word & 0xff] ^ kTables[6][word >> 8 & 0xff] ^ kTables[5][word >> 16 & 0xff] ^
            kTables[4][word >> 24 & 0xff] ^ kTables[3][word >> 32 & 0xff] ^
            kTables[2][word >> 40 & 0xff] ^ kTables[1][word >> 48 & 0xff] ^ kTables[0][word >> 56];
  }
  if (left >= 4) {
    std::uint32_t word;
    std::memcpy(&word, at, sizeof word);
    word ^= state;
    state = kTables[3][word & 0xff] ^ kTables[2][word >> 8 & 0xff] ^ kTables[1][word >> 16 & 0xff] ^
            kTables[0][word >> 24];
    left -= 4;
    at += 4;
  }
  for (; left > 0; --left, ++at) state = state >> 8 ^ kTables[0][(state ^ *at) & 0xff];
  return ~state;
}

}  // namespace softhca
