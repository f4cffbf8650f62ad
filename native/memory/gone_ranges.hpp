// The parts of a region that are gone, in a fixed space.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace softhca {

// A range of addresses that does not wrap; `end` is the first address behind it.
struct AddressRange {
  std::uint64_t start = 0;
  std::uint64_t end = 0;

  bool empty() const { return start >= end; }
  friend bool operator==(const AddressRange&, const AddressRange&) = default;
};

inline AddressRange intersection(const AddressRange& a, const AddressRange& b) {
  return {std::max(a.start, b.start), std::min(a.end, b.end)};
}

// Disjoint ranges in order, none touching the next. What is added stays. With more than kCapacity
// apart, the two nearest become one with what is between them.
class GoneRanges {
 public:
  static constexpr std::size_t kCapacity = 32;

  bool overlaps(const AddressRange& range) const {
    for (std::size_t at = 0; at < count_; ++at) {
      if (!intersection(ranges_[at], range).empty()) return true;
    }
    return false;
  }

  // Adds a range, and calls `on_gone(part, exact)` for each part that was not in before; not exact
  // is what only went since there is no space to tell it from its neighbours.
  template <class OnGone>
  void add(const AddressRange& range, OnGone on_gone) {
    if (range.empty()) return;
    AddressRange rest = range;
    for (std::size_t at = 0; at < count_ && !rest.empty(); ++at) {
      if (ranges_[at].end <= rest.start) continue;
      if (ranges_[at].start >= rest.end) break;
      if (ranges_[at].start > rest.start) on_gone({rest.start, ranges_[at].start}, true);
      rest.start = ranges_[at].end;
    }
    if (!rest.empty()) on_gone(rest, true);
    insert(range);
    if (count_ > kCapacity) on_gone(close_nearest_gap(), false);
  }

  std::size_t size() const { return count_; }
  const AddressRange& operator[](std::size_t at) const { return ranges_[at]; }

 private:
  void insert(AddressRange range);
  AddressRange close_nearest_gap();

  std::size_t count_ = 0;
  std::array<AddressRange, kCapacity + 1> ranges_;
};

}  // namespace softhca
