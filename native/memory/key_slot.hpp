// What one key of a memory table stands for: a region, a region for fast registration, or a window.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "memory/address_space.hpp"
#include "memory/watched_range.hpp"
#include "vocabulary/enums.hpp"

namespace softhca {

struct RegionRequest {
  std::uint32_t pd = 0;
  std::uint64_t address = 0;  // Where the bytes lie.
  std::uint64_t length = 0;
  std::uint64_t iova = 0;                                 // What keys address them by.
  std::uint32_t access = 0;                               // AccessFlags.
  std::shared_ptr<const WatchedRange> watched = nullptr;  // What is gone of it, if it is watched.
  std::shared_ptr<AddressSpace> space = nullptr;          // Null: the table's own.
};

// A run of bytes of a region that is made of several; pieces lie one behind the other in the
// addresses of its key.
struct Piece {
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint64_t begin = 0;  // Bytes of the region before it.
};

enum class KeyKind : std::uint8_t { REGION, FAST_REGION, WINDOW_1, WINDOW_2 };

struct KeySlot {
  // For a bound window, `address` is where it begins in the addresses of the region under it, and
  // `iova` what its own key calls that byte.
  RegionRequest region;
  std::uint32_t handle = 0;  // The first key; it stays when the tag changes.
  std::uint8_t tag = 0;
  std::uint8_t posted_tag = 0;  // Windows of type 1: the tag when all posted binds have run.
  bool live = false;
  KeyKind kind = KeyKind::REGION;
  KeyState state = KeyState::VALID;
  std::uint32_t windows = 0;  // Regions: windows that are bound to it.
  std::uint32_t under = 0;    // Bound windows: index of the region.
  std::uint32_t qpn = 0;      // Bound type 2 windows: the queue pair that may use it.

  // Regions for fast registration: what the key stands for while it is valid, and what the next
  // REG_MR will make it stand for.
  std::vector<Piece> pieces;
  std::vector<Piece> mapped_pieces;
  std::uint64_t mapped_length = 0;
  std::uint64_t mapped_iova = 0;
  std::uint32_t max_pieces = 0;  // Pages, where there may be no gaps.
  bool may_have_gaps = false;
  bool mapped_writable = false;

  bool is_window() const { return kind == KeyKind::WINDOW_1 || kind == KeyKind::WINDOW_2; }
};

}  // namespace softhca
