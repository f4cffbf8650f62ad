// What a watched region tells the accesses to it.
#pragma once

#include "memory/access_gate.hpp"
#include "memory/gone_ranges.hpp"

namespace softhca {

struct WatchedRange {
  virtual ~WatchedRange() = default;

  GoneRanges gone;  // Read inside the gate; written while it is closed.
};

// Runs `move()`, an access to `length` bytes at `address` that answers false when it fails, unless
// any of them are gone. `watched` is null for memory that nobody watches.
template <class Move>
bool move_present(const WatchedRange* watched, std::uint64_t address, std::uint64_t length,
                  Move move) {
  if (watched == nullptr) return move();
  const GatePass pass;
  return !watched->gone.overlaps({address, address + length}) && move();
}

}  // namespace softhca
