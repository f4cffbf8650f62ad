// Memory with a meaning per byte: what a peer may read, may write, or may not touch. Everything is
// filled with patterns, so that a byte that leaks or changes against its rights shows.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

namespace softhca::fuzz {

enum class Right : std::uint8_t { NOTHING, READ, WRITE, LAND };

class Arena {
 public:
  static constexpr std::uint8_t kSecret = 0x5a;  // A peer must never see it.
  static constexpr std::uint8_t kPublic = 0xa5;  // Readable by a peer.

  struct Area {
    std::size_t offset;
    std::size_t size;
    Right right;
  };

  // Areas lie between guards of `guard` bytes; one guard is inside the region on request of the
  // caller, not here.
  std::size_t add(std::size_t size, Right right, std::size_t guard = 64) {
    const std::size_t offset = bytes_.size() + guard;
    areas_.push_back({offset, size, right});
    bytes_.resize(offset + size + guard);
    return areas_.size() - 1;
  }
  void fill() {
    std::memset(bytes_.data(), kSecret, bytes_.size());
    for (const Area& area : areas_) {
      if (area.right != Right::NOTHING) {
        std::memset(bytes_.data() + area.offset, kPublic, area.size);
      }
    }
    before_ = bytes_;
  }
  std::uint8_t* at(std::size_t area) { return bytes_.data() + areas_[area].offset; }
  std::size_t size(std::size_t area) const { return areas_[area].size; }

  // Offset of a byte that changed without a right to it; npos if there is none. Forgets the changes
  // that were allowed.
  static constexpr std::size_t npos = ~std::size_t{0};
  std::size_t find_trespass() {
    for (const Area& area : areas_) {
      if (area.right == Right::WRITE || area.right == Right::LAND) {
        std::memset(bytes_.data() + area.offset, kPublic, area.size);
      }
    }
    if (bytes_ == before_) {
      return npos;
    }
    for (std::size_t at = 0; at < bytes_.size(); ++at) {
      if (bytes_[at] != before_[at]) {
        return at;
      }
    }
    return npos;
  }

 private:
  std::vector<std::uint8_t> bytes_;
  std::vector<std::uint8_t> before_;
  std::vector<Area> areas_;
};

}  // namespace softhca::fuzz
