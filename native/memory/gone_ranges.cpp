#include "memory/gone_ranges.hpp"

namespace softhca {

void GoneRanges::insert(AddressRange range) {
  std::size_t first = 0;
  while (first < count_ && ranges_[first].end < range.start) ++first;
  std::size_t behind = first;
  for (; behind < count_ && ranges_[behind].start <= range.end; ++behind) {
    range.start = std::min(range.start, ranges_[behind].start);
    range.end = std::max(range.end, ranges_[behind].end);
  }
  const auto begin = ranges_.begin();
  if (behind == first) {
    std::copy_backward(begin + first, begin + count_, begin + count_ + 1);
    ++count_;
  } else {
    std::copy(begin + behind, begin + count_, begin + first + 1);
    count_ -= behind - first - 1;
  }
  ranges_[first] = range;
}

AddressRange GoneRanges::close_nearest_gap() {
  std::size_t nearest = 0;
  for (std::size_t at = 1; at + 1 < count_; ++at) {
    if (ranges_[at + 1].start - ranges_[at].end <
        ranges_[nearest + 1].start - ranges_[nearest].end) {
      nearest = at;
    }
  }
  const AddressRange gap{ranges_[nearest].end, ranges_[nearest + 1].start};
  insert(gap);
  return gap;
}

}  // namespace softhca
