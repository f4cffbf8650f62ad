// Arithmetic modulo the CRC-32 polynomial, at compile time, from which every constant of the CRC
// and ICRC routines is derived.
//
// A 32-bit value stands for a polynomial over GF(2) in reflected order: bit 31 is the coefficient
// of x^0, bit 0 that of x^31. That is the order in which a CRC register holds it.
#pragma once

#include <array>
#include <cstdint>

namespace softhca::crc32_polynomial {

// Ethernet's generator without its x^32 term, in ordinary order: bit i is the coefficient of x^i.
inline constexpr std::uint32_t kOrdinary = 0x04C11DB7;

constexpr std::uint64_t reflect(std::uint64_t value, unsigned bit_count) {
  std::uint64_t reflected = 0;
  for (unsigned i = 0; i < bit_count; ++i) {
    if ((value >> i & 1) != 0) reflected |= std::uint64_t{1} << (bit_count - 1 - i);
  }
  return reflected;
}

inline constexpr auto kReflected = static_cast<std::uint32_t>(reflect(kOrdinary, 32));
inline constexpr std::uint32_t kOne = 0x80000000;

constexpr std::uint32_t times_x(std::uint32_t value) {
  return (value & 1) != 0 ? value >> 1 ^ kReflected : value >> 1;
}

// The generator has a constant term, so x has an inverse modulo it.
constexpr std::uint32_t over_x(std::uint32_t value) {
  return (value & kOne) != 0 ? (value ^ kReflected) << 1 | 1 : value << 1;
}

constexpr std::uint32_t power_of_x(unsigned exponent) {
  std::uint32_t power = kOne;
  for (unsigned i = 0; i < exponent; ++i) power = times_x(power);
  return power;
}

constexpr std::uint32_t multiply(std::uint32_t left, std::uint32_t right) {
  std::uint32_t product = 0;
  for (unsigned i = 0; i < 32; ++i) {
    // Masks instead of branches: the bits of a packet's difference are not predictable.
    product ^= left & (0 - (right >> 31));
    left = left >> 1 ^ (kReflected & (0 - (left & 1)));
    right <<= 1;
  }
  return product;
}

// Quotient of x^64 by the generator, 33 bits in ordinary order: Barrett's constant.
constexpr std::uint64_t x64_over_generator() {
  const std::uint64_t generator = std::uint64_t{1} << 32 | kOrdinary;
  std::uint64_t quotient = 1;  // x^64 / x^32; what is left is kOrdinary times x^32.
  std::uint64_t remainder = std::uint64_t{kOrdinary} << 32;
  for (int degree = 63; degree >= 32; --degree) {
    quotient <<= 1;
    if ((remainder >> degree & 1) == 0) continue;
    quotient |= 1;
    remainder ^= generator << (degree - 32);
  }
  return quotient;
}

// Contribution of each byte value at each of eight positions: table[k][b] is the register after
// byte b and k bytes of zero.
constexpr std::array<std::array<std::uint32_t, 256>, 8> build_byte_tables() {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (auto& table : tables) {
      for (int i = 0; i < 8; ++i) value = times_x(value);
      table[byte] = value;
    }
  }
  return tables;
}

}  // namespace softhca::crc32_polynomial
