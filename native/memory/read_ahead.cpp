#include "memory/read_ahead.hpp"

#include <algorithm>
#include <cstring>

namespace softhca {
namespace {

// Of a train of full packets.
constexpr std::size_t kRoomBytes = 15 * 4096;

}  // namespace

bool ReadAhead::holds(const AddressSpace& from, std::uint64_t address, std::size_t bytes) const {
  return from_ == &from && address >= address_ && bytes <= held_ &&
         address - address_ <= held_ - bytes;
}

bool ReadAhead::copy_in(AddressSpace& from, std::uint64_t address, ByteSpan to,
                        std::uint64_t more) {
  if (!holds(from, address, to.size())) {
    held_ = 0;
    if (more == 0 || to.size() >= kRoomBytes || from.foreign() == nullptr) {
      return from.copy_in(address, to);
    }
    if (bytes_ == nullptr) {
      bytes_ = std::make_unique<std::uint8_t[]>(kRoomBytes);
    }
    const std::size_t wanted = to.size() + std::min<std::uint64_t>(more, kRoomBytes - to.size());
    // What is behind may be gone, which is not this packet's concern.
    if (!from.copy_in(address, {bytes_.get(), wanted})) {
      return from.copy_in(address, to);
    }
    from_ = &from;
    address_ = address;
    held_ = wanted;
  }
  std::memcpy(to.data(), bytes_.get() + (address - address_), to.size());
  return true;
}

}  // namespace softhca
