// Where user bytes live. Nothing outside memory/ holds a user pointer; everything goes through one
// of these.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "memory/foreign_memory.hpp"
#include "vocabulary/bytes.hpp"

namespace softhca {

// Every call answers false, and may have moved a part, when the memory is not there or does not
// allow it.
class AddressSpace {
 public:
  virtual ~AddressSpace() = default;

  // Addresses are pointers of this process.
  virtual bool is_direct() const { return false; }

  // Another process's memory, where others may be handed it too; else null.
  virtual const ForeignMemory* foreign() const { return nullptr; }

  // Whoever had the memory is no more, and there will be none of it again.
  virtual bool is_gone() const { return false; }

  // User bytes into the adapter.
  virtual bool copy_in(std::uint64_t address, ByteSpan to) = 0;
  // The adapter's bytes out to the user.
  virtual bool copy_out(std::uint64_t address, ByteView from) = 0;
  // The same for pieces, one behind the other.
  virtual bool copy_out_all(std::uint64_t address, std::span<const ByteView> from) {
    return std::ranges::all_of(from, [&](const ByteView& piece) {
      const std::uint64_t at = address;
      address += piece.size();
      return copy_out(at, piece);
    });
  }
  // Atomic with respect to the CPU, in host byte order; `address` is a multiple of eight.
  virtual bool fetch_add(std::uint64_t address, std::uint64_t addend, std::uint64_t& original) = 0;
  virtual bool compare_swap(std::uint64_t address, std::uint64_t compare, std::uint64_t swap,
                            std::uint64_t& original) = 0;
};

// The memory of this process, guarded: a range that was unmapped, truncated or made read-only under
// us gives false, never a signal. One for the process; needs no destruction.
AddressSpace& process_space();

}  // namespace softhca
