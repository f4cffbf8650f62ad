// How much memory the kernel maps, protects and takes away at once.
#pragma once

#include <unistd.h>

#include <cstdint>

namespace softhca {

// A power of two: 4 KiB on x86-64; on arm64 4, 16 or 64 KiB, as its kernel was built.
inline std::uint64_t page_bytes() {
  static const auto bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace softhca
