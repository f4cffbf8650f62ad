// CRC-32 of Ethernet (reflected 0x04C11DB7), by the CPU's instructions for it or for carry-less
// multiplication where it has them and is not an emulator that is slow at it, by shifts elsewhere.
#pragma once

#include <cstdint>

#include "vocabulary/bytes.hpp"

namespace softhca {

// Continues a CRC in zlib's convention: crc32(0, b"123456789") == 0xCBF43926.
std::uint32_t crc32(std::uint32_t crc, ByteView bytes);

// Name of the routine that crc32 uses on this CPU: "vpclmulqdq", "pclmulqdq", "armv8-crc" or
// "sparse".
const char* crc32_routine();

// The same by tables alone; the reference for tests, and what others leave at the end.
std::uint32_t crc32_by_table(std::uint32_t crc, ByteView bytes);

}  // namespace softhca
