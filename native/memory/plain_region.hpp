// A region as most are: memory of this process, in one run, that nobody watches. All that an access
// to it has to pass lies together in one line of memory, since every message asks for it.
#pragma once

#include <cstdint>

namespace softhca {

struct alignas(64) PlainRegion {
  // No key has this index: what is at its place in the table is not so simple.
  static constexpr std::uint32_t kNoKey = ~std::uint32_t{0};

  std::uint64_t iova = 0;
  std::uint64_t length = 0;
  std::uint64_t address = 0;
  std::uint32_t key = kNoKey;
  std::uint32_t pd = 0;
  std::uint32_t access = 0;

  bool grants(std::uint32_t domain, std::uint32_t wanted_key, std::uint32_t wanted) const {
    return key == wanted_key && pd == domain && (access & wanted) == wanted;
  }
  // Where such bytes lie; null: not within it. It may go at any time: copies are guarded.
  [[gnu::always_inline]] const std::uint8_t* at(std::uint64_t from, std::uint64_t bytes) const {
    const std::uint64_t offset = from - iova;  // Of what lies before it, too large.
    return offset <= length && bytes <= length - offset
               ? reinterpret_cast<const std::uint8_t*>(address + offset)
               : nullptr;
  }
};

}  // namespace softhca
