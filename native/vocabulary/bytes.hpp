// Big-endian loads and stores. Every multi-byte field on the wire is big-endian (IBTA Vol
// 1, 1.5.2), except the ICRC.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

namespace softhca {

using ByteView = std::span<const std::uint8_t>;
using ByteSpan = std::span<std::uint8_t>;

inline std::uint16_t load_be16(const std::uint8_t* at) {
  std::uint16_t value;
  std::memcpy(&value, at, sizeof value);
  return __builtin_bswap16(value);
}

inline std::uint32_t load_be24(const std::uint8_t* at) {
  return static_cast<std::uint32_t>(at[0]) << 16 | static_cast<std::uint32_t>(at[1]) << 8 | at[2];
}

inline std::uint32_t load_be32(const std::uint8_t* at) {
  std::uint32_t value;
  std::memcpy(&value, at, sizeof value);
  return __builtin_bswap32(value);
}

inline std::uint64_t load_be64(const std::uint8_t* at) {
  std::uint64_t value;
  std::memcpy(&value, at, sizeof value);
  return __builtin_bswap64(value);
}

inline void store_be16(std::uint8_t* at, std::uint16_t value) {
  value = __builtin_bswap16(value);
  std::memcpy(at, &value, sizeof value);
}

inline void store_be24(std::uint8_t* at, std::uint32_t value) {
  at[0] = static_cast<std::uint8_t>(value >> 16);
  at[1] = static_cast<std::uint8_t>(value >> 8);
  at[2] = static_cast<std::uint8_t>(value);
}

inline void store_be32(std::uint8_t* at, std::uint32_t value) {
  value = __builtin_bswap32(value);
  std::memcpy(at, &value, sizeof value);
}

inline void store_be64(std::uint8_t* at, std::uint64_t value) {
  value = __builtin_bswap64(value);
  std::memcpy(at, &value, sizeof value);
}

}  // namespace softhca
