// Bytes that are fetched from where another adapter of this host has them.
#pragma once

#include <cstdint>

#include "memory/address_space.hpp"
#include "memory/guarded_access.hpp"
#include "vocabulary/bytes.hpp"

namespace softhca {

// A copy that can be made again, by a way that knows what to do about bytes that are not there. Not
// of bytes over themselves, which that way does in two steps.
inline bool copies_apart(const std::uint8_t* to, ByteView from) {
  const auto distance = static_cast<std::uint64_t>(to - from.data());
  if (distance < from.size() || -distance < from.size()) return false;
  return guarded_copy(const_cast<std::uint8_t*>(to), from.data(), from.size()) == 0;
}

// The same of bytes in `space`, which need not be this process: their place there is that of
// `from`.
inline bool fetches_apart(const std::uint8_t* to, AddressSpace& space, ByteView from) {
  if (space.is_direct()) return copies_apart(to, from);
  return space.copy_in(reinterpret_cast<std::uint64_t>(from.data()),
                       {const_cast<std::uint8_t*>(to), from.size()});
}

}  // namespace softhca
