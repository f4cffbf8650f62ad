#include "memory/gone_ranges.hpp"

namespace softhca {

// The space is not written to: of a large one, only what is used takes memory.
void GoneRanges::reserve(std::size_t ranges) {
  ranges = std::min(ranges, kMostCapacity);
  if (ranges <= capacity_) return;
  auto* const space = static_cast<AddressRange*>(std::malloc((ranges + 1) * sizeof(AddressRange)));
  if (space == nullptr) return;  // Then there is less, and two become one sooner.
  more_.reset(space);
  capacity_ = ranges;
}

void GoneRanges::insert(AddressRange range) {
  AddressRange* const ranges = begin();
  AddressRange* const stop = ranges + count_;
  AddressRange* const first = std::partition_point(
      ranges, stop, [&](const AddressRange& at) { return at.end < range.start; });
  AddressRange* behind = first;
  for (; behind != stop && behind->start <= range.end; ++behind) {
    range.start = std::min(range.start, behind->start);
    range.end = std::max(range.end, behind->end);
  }
  if (behind == first) {
    std::copy_backward(first, stop, stop + 1);
    ++count_;
  } else {
    std::copy(behind, stop, first + 1);
    count_ -= static_cast<std::size_t>(behind - first) - 1;
  }
  *first = range;
}

AddressRange GoneRanges::close_nearest_gap() {
  const AddressRange* const ranges = begin();
  std::size_t nearest = 0;
  for (std::size_t at = 1; at + 1 < count_; ++at) {
    if (ranges[at + 1].start - ranges[at].end < ranges[nearest + 1].start - ranges[nearest].end) {
      nearest = at;
    }
  }
  const AddressRange gap{ranges[nearest].end, ranges[nearest + 1].start};
  insert(gap);
  return gap;
}

}  // namespace softhca
