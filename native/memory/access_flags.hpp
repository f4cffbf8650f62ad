// What a registration may ask for: rights that fit together, ranges that do not wrap.
#pragma once

#include <cstdint>

#include "memory/key_slot.hpp"
#include "vocabulary/status.hpp"

namespace softhca {

// Implicit regions: the whole address space, as libibverbs names it.
inline constexpr std::uint64_t kWholeSpaceBytes = ~std::uint64_t{0};

inline constexpr std::uint32_t kRemoteRights =
    kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic | kAccessFlushGlobal;

inline bool wraps(std::uint64_t address, std::uint64_t length) {
  return length != 0 && address + (length - 1) < address;
}

// IBTA Vol 1, 10.6.3 and 11.2.8.2.
Status check_access_flags(std::uint32_t access);
Status check_region(const RegionRequest& request, std::uint64_t max_region_bytes);

}  // namespace softhca
