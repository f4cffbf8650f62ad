// Queue pairs by the thousand are far away in memory, and each has some twenty lines of it. Asked
// for together, they take little longer than one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace softhca {

class Warmth {
 public:
  // Has all of `object` fetched, unless it was the last one that was.
  template <class Object>
  void fetch(const Object& object) {
    if (last_ == &object) return;
    last_ = &object;
    const auto* const at = reinterpret_cast<const std::uint8_t*>(&object);
    for (std::size_t offset = 0; offset < sizeof object; offset += 64) {
      __builtin_prefetch(at + offset, 1);
    }
  }

 private:
  const void* last_ = nullptr;
};

}  // namespace softhca
