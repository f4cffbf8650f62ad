// Where in a ring of queue entries an ever-growing index lies. Rings have a power of two of slots,
// whatever their capacity: an index is looked up many times for each message, and a division costs
// as much as copying an entry.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace softhca {

class RingSlots {
 public:
  // At least one slot, so that there is always a place to look at.
  explicit RingSlots(std::uint32_t capacity = 0)
      : mask_(std::bit_ceil(std::size_t{capacity == 0 ? 1 : capacity}) - 1) {}

  std::size_t count() const { return mask_ + 1; }
  std::size_t of(std::uint64_t index) const { return index & mask_; }

 private:
  std::size_t mask_;
};

}  // namespace softhca
