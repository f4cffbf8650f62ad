// What a CRC-32 is kept in while bytes go by, step by step: wire/crc32_lanes.hpp begins and ends
// it, and memory/ folds in what it copies.
#pragma once

#include <cstddef>
#include <cstdint>

namespace softhca {

// The bytes of the first step are added (exclusive or) to what is there. Before each other step
// every 16 bytes of the lanes, taken as two polynomials, are multiplied by the factors that carry
// them to its place.
struct alignas(64) FoldLanes {
  static constexpr std::size_t kBytes = 256;
  std::uint8_t bytes[kBytes];
};

struct FoldFactors {
  std::uint64_t low;
  std::uint64_t high;
};

}  // namespace softhca
