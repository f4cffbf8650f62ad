// The parts of a region that are gone, in a space that is there before anything goes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

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

// All pages that a range touches; `page_bytes` is a power of two.
inline AddressRange pages_around(const AddressRange& range, std::uint64_t page_bytes) {
  return {range.start & ~(page_bytes - 1), (range.end + page_bytes - 1) & ~(page_bytes - 1)};
}

// Those that lie wholly in it; empty if there are none.
inline AddressRange pages_within(const AddressRange& range, std::uint64_t page_bytes) {
  return {(range.start + page_bytes - 1) & ~(page_bytes - 1), range.end & ~(page_bytes - 1)};
}

// Disjoint ranges in order, none touching the next. What is added stays. With more apart than there
// is space for, the two nearest become one with what is between them.
class GoneRanges {
 public:
  // Ranges that there is always space for.
  static constexpr std::size_t kCapacity = 32;
  // The most that space is made for.
  static constexpr std::size_t kMostCapacity = 4096;

  // Makes space for `ranges`, as far as that is allowed; nothing may have been added yet. Adding
  // never allocates: who adds must not (decision 8).
  void reserve(std::size_t ranges);
  std::size_t capacity() const { return capacity_; }

  bool overlaps(const AddressRange& range) const {
    const AddressRange* at = first_behind(range.start);
    return at != end() && !intersection(*at, range).empty();
  }

  // Adds a range, and calls `on_gone(part, exact)` for each part that was not in before; not exact
  // is what only went since there is no space to tell it from its neighbours.
  template <class OnGone>
  void add(const AddressRange& range, OnGone on_gone) {
    if (range.empty()) return;
    AddressRange rest = range;
    for (const AddressRange* at = first_behind(range.start); at != end() && !rest.empty(); ++at) {
      if (at->start >= rest.end) break;
      if (at->start > rest.start) on_gone({rest.start, at->start}, true);
      rest.start = at->end;
    }
    if (!rest.empty()) on_gone(rest, true);
    insert(range);
    if (count_ > capacity_) on_gone(close_nearest_gap(), false);
  }

  std::size_t size() const { return count_; }
  const AddressRange& operator[](std::size_t at) const { return begin()[at]; }

 private:
  const AddressRange* begin() const { return more_ ? more_.get() : few_.data(); }
  const AddressRange* end() const { return begin() + count_; }
  AddressRange* begin() { return more_ ? more_.get() : few_.data(); }
  // The first range that reaches beyond `start`.
  const AddressRange* first_behind(std::uint64_t start) const {
    return std::partition_point(begin(), end(),
                                [=](const AddressRange& at) { return at.end <= start; });
  }

  void insert(AddressRange range);
  AddressRange close_nearest_gap();

  struct Free {
    void operator()(AddressRange* ranges) const { std::free(ranges); }
  };

  std::size_t count_ = 0;
  std::size_t capacity_ = kCapacity;
  // One more than fit, before two become one.
  std::array<AddressRange, kCapacity + 1> few_;
  std::unique_ptr<AddressRange[], Free> more_;
};

}  // namespace softhca
