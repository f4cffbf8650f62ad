// Where tests of invalidation map and unmap: addresses that the kernel gives to nobody, so that a
// hole stays a hole however many threads there are.
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tests/check.hpp"
#include "tests/rounds.hpp"
#include "vocabulary/page_bytes.hpp"

namespace softhca::testing {

inline const std::size_t kPage = page_bytes();

inline void* pointer(std::uint64_t address) { return reinterpret_cast<void*>(address); }

// Far below where the kernel puts mappings, which it does downwards from a place that is another
// one in each process; and nothing lies there.
inline std::uint64_t ground() {
  constexpr std::uint64_t kGigabyte = std::uint64_t{1} << 30;
  constexpr std::uint64_t kBytes = 96 * kGigabyte;
  // Past the sanitizers, which would note something about each of these bytes.
  const auto map = [](std::uint64_t at, std::uint64_t bytes, int how) {
    const long mapped = syscall(SYS_mmap, at, bytes, PROT_NONE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | how, -1, 0);
    if (mapped != -1) syscall(SYS_munmap, mapped, bytes);
    return static_cast<std::uint64_t>(mapped);
  };
  static const std::uint64_t begin = [&] {
    std::uint64_t at = map(0, kPage, 0) / kGigabyte * kGigabyte - 2 * kBytes;
    for (int tries = 0; tries < 16 && map(at, kBytes, MAP_FIXED_NOREPLACE) != at; ++tries) {
      at -= kBytes;
    }
    return at;
  }();
  return begin;
}

inline std::uint64_t zone_of(std::size_t thread) {
  return ground() + (static_cast<std::uint64_t>(thread) << 30);
}

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
