// The memory of another process, fetched for the packets of a train at once: each fetch is a system
// call, which costs more than the bytes of a packet.
#pragma once

#include <cstdint>
#include <memory>

#include "memory/address_space.hpp"
#include "vocabulary/bytes.hpp"

namespace softhca {

class ReadAhead {
 public:
  // Copies what lies at `address`. The `more` bytes behind it will be asked for next, and whoever
  // owns them does not change them until then.
  bool copy_in(AddressSpace& from, std::uint64_t address, ByteSpan to, std::uint64_t more);
  // What was fetched may have changed, or belong to nobody.
  void forget() { held_ = 0; }

 private:
  bool holds(const AddressSpace& from, std::uint64_t address, std::size_t bytes) const;

  std::unique_ptr<std::uint8_t[]> bytes_;
  const AddressSpace* from_ = nullptr;
  std::uint64_t address_ = 0;
  std::size_t held_ = 0;
};

}  // namespace softhca
