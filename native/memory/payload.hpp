// The bytes of a message's part: in a buffer of the adapter, or still where the sender has them.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "memory/address_space.hpp"
#include "vocabulary/bytes.hpp"
#include "vocabulary/memory_piece.hpp"

namespace softhca {

struct Payload {
  ByteView bytes;
  std::span<const MemoryPiece> pieces;  // Instead of `bytes`.
  std::uint64_t pieces_bytes = 0;

  Payload(ByteView view) : bytes(view) {}                 // NOLINT(google-explicit-constructor)
  Payload(std::span<std::uint8_t> view) : bytes(view) {}  // NOLINT(google-explicit-constructor)
  template <std::size_t size>
  Payload(const std::array<std::uint8_t, size>& all) : bytes(all) {}  // NOLINT
  Payload(ByteView view, std::span<const MemoryPiece> runs, std::uint64_t total)
      : bytes(view), pieces(runs), pieces_bytes(total) {}

  std::uint64_t size() const { return bytes.size() + pieces_bytes; }
};

// Copies `length` bytes of `from`, beginning at `offset`, to `address` of `to`. False when memory
// was not there; a part may have been copied.
bool copy_payload(const Payload& from, std::uint64_t offset, AddressSpace& to,
                  std::uint64_t address, std::uint64_t length);

// Whether all of it is there to be read.
bool is_readable(const Payload& payload);

// Copies from one space to another, without a copy in between if either is this process.
bool copy_between(AddressSpace& from, std::uint64_t source, AddressSpace& to, std::uint64_t target,
                  std::uint64_t length);

}  // namespace softhca
