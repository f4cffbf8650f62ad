// A run of bytes, where they lie.
#pragma once

#include <cstdint>

namespace softhca {

class AddressSpace;

struct MemoryPiece {
  AddressSpace* space = nullptr;
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint32_t key = 0;  // That the access was granted by, where there is one.
};

}  // namespace softhca
