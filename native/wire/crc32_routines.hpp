// The routines behind crc32(), for those who compare them: tests and the benchmark.
#pragma once

#include <cstdint>
#include <span>

#include "vocabulary/bytes.hpp"
#include "vocabulary/fold_lanes.hpp"

namespace softhca {

struct Crc32Routine {
  const char* name;
  std::uint32_t (*run)(std::uint32_t crc, ByteView bytes);
  // Null: it has no lanes.
  const FoldFactors* factors = nullptr;
  std::uint32_t (*of_lanes)(const FoldLanes& lanes) = nullptr;
};

// Those that this CPU can run, one of them the table. The first is the one in use; the others
// follow in the order in which real CPUs are fast at them.
std::span<const Crc32Routine> crc32_routines();

// Any CPU can do this.
std::uint32_t crc32_by_sparse_multiple(std::uint32_t crc, ByteView bytes);

#if defined(__x86_64__)
// The caller must know that the CPU has PCLMULQDQ and SSE4.1.
std::uint32_t crc32_by_pclmulqdq(std::uint32_t crc, ByteView bytes);

// The caller must know that the CPU has VPCLMULQDQ and AVX-512F.
std::uint32_t crc32_by_vpclmulqdq(std::uint32_t crc, ByteView bytes);
extern const FoldFactors vpclmulqdq_factors;
std::uint32_t of_lanes_by_vpclmulqdq(const FoldLanes& lanes);
#endif

#if defined(__aarch64__)
// The caller must know that the CPU has the CRC extension.
std::uint32_t crc32_by_armv8(std::uint32_t crc, ByteView bytes);
#endif

}  // namespace softhca
