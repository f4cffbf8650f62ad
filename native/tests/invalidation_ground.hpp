// Where tests of invalidation map and unmap: addresses that the kernel gives to nobody, so that a
// hole stays a hole however many threads there are.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tests/check.hpp"
#include "tests/rounds.hpp"

namespace softhca::testing {

inline constexpr std::size_t kPage = 4096;
// Far from where the kernel puts mappings, and free under every sanitizer.
inline constexpr std::uint64_t kZone = 0x7e90'0000'0000;

inline std::uint64_t zone_of(std::size_t thread) {
  return kZone + (static_cast<std::uint64_t>(thread) << 30);
}

inline void* pointer(std::uint64_t address) { return reinterpret_cast<void*>(address); }

// Where nothing has been yet, and no neighbour grows into it.
inline std::uint64_t fresh_place(std::size_t pages) {
  static std::atomic<std::uint64_t> next{zone_of(64)};
  return next.fetch_add((pages + 64) * kPage);
}

// Maps pages, over what is there if an address is given.
inline std::uint64_t map_pages(std::size_t pages, std::uint64_t at = 0) {
  void* mapped = mmap(pointer(at != 0 ? at : fresh_place(pages)), pages * kPage,
                      PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  CHECK(mapped != MAP_FAILED);
  return reinterpret_cast<std::uint64_t>(mapped);
}

}  // namespace softhca::testing
