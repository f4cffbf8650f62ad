#include "memory/payload.hpp"

#include <algorithm>
#include <vector>

namespace softhca {
namespace {

// Of a copy between two other processes; it stays in the cache.
constexpr std::uint64_t kBounceBytes = 512 * 1024;

}  // namespace

bool copy_between(AddressSpace& from, std::uint64_t source, AddressSpace& to, std::uint64_t target,
                  std::uint64_t length) {
  if (from.is_direct()) {
    return to.copy_out(target, {reinterpret_cast<const std::uint8_t*>(source), length});
  }
  // What is short comes from there in any order of bytes, and its last may be watched.
  const bool goes_round = from.foreign() != nullptr && length < kLongForeignBytes;
  if (to.is_direct() && !goes_round) {
    return from.copy_in(source, {reinterpret_cast<std::uint8_t*>(target), length});
  }
  thread_local std::vector<std::uint8_t> bounce;
  bounce.resize(std::max<std::size_t>(bounce.size(), std::min(length, kBounceBytes)));
  for (std::uint64_t done = 0; done < length;) {
    const std::uint64_t step = std::min(length - done, kBounceBytes);
    const ByteSpan room(bounce.data(), step);
    if (!from.copy_in(source + done, room) || !to.copy_out(target + done, room)) return false;
    done += step;
  }
  return true;
}

bool is_readable(const Payload& payload) {
  std::vector<std::uint8_t> room(4096);
  for (const MemoryPiece& piece : payload.pieces) {
    for (std::uint64_t done = 0; done < piece.length; done += room.size()) {
      const std::uint64_t step = std::min<std::uint64_t>(piece.length - done, room.size());
      if (!piece.space->copy_in(piece.address + done, ByteSpan(room).first(step))) return false;
    }
  }
  return true;
}

bool copy_payload(const Payload& from, std::uint64_t offset, AddressSpace& to,
                  std::uint64_t address, std::uint64_t length) {
  if (from.pieces.empty()) return to.copy_out(address, from.bytes.subspan(offset, length));
  for (const MemoryPiece& piece : from.pieces) {
    if (length == 0) break;
    if (offset >= piece.length) {
      offset -= piece.length;
      continue;
    }
    const std::uint64_t step = std::min(piece.length - offset, length);
    if (!copy_between(*piece.space, piece.address + offset, to, address, step)) return false;
    address += step;
    length -= step;
    offset = 0;
  }
  return length == 0;
}

}  // namespace softhca
