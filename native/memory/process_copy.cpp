#include "memory/process_copy.hpp"

#include <unistd.h>

#include <algorithm>

namespace softhca {
namespace {

// A word, which is what programs watch that do not watch a byte.
constexpr std::size_t kLastBytes = 8;

}  // namespace

WatchedParts::WatchedParts(std::uint64_t address, std::size_t bytes) {
  const std::size_t first = bytes > kLastBytes ? bytes - kLastBytes : bytes;
  parts[0] = {reinterpret_cast<void*>(address), first};
  parts[1] = {reinterpret_cast<void*>(address + first), bytes - first};
  count = bytes > first ? 2 : 1;
}

// The kernel looks up each range over there anew, and a call has to find the other process first.
// Pieces here cost next to nothing.
std::size_t read_process(pid_t process, std::span<const ProcessRead> reads) {
  std::array<iovec, 2 * kMostReads> here;
  std::array<iovec, 2 * kMostReads> there;
  std::size_t here_count = 0;
  std::size_t there_count = 0;
  const auto append = [](std::array<iovec, 2 * kMostReads>& to, std::size_t& count,
                         const WatchedParts& range) {
    for (std::size_t i = 0; i < range.count; ++i) to[count++] = range.parts[i];
  };
  for (const ProcessRead& read : reads) {
    append(here, here_count, WatchedParts(read.to));
    if (kPiecesInOrder) {
      there[there_count++] = {reinterpret_cast<void*>(read.address), read.to.size()};
    } else {
      append(there, there_count, {read.address, read.to.size()});
    }
  }
  const ssize_t moved =
      process_vm_readv(process, here.data(), here_count, there.data(), there_count, 0);
  auto left = static_cast<std::size_t>(std::max<ssize_t>(moved, 0));
  std::size_t whole = 0;
  while (whole < reads.size() && reads[whole].to.size() <= left) {
    left -= reads[whole++].to.size();
  }
  return whole;
}

ssize_t write_process(pid_t process, std::uint64_t address, std::span<const iovec> from,
                      std::size_t bytes) {
  const WatchedParts there(address, bytes);
  return process_vm_writev(process, from.data(), from.size(), there.parts.data(), there.count, 0);
}

// These are made of one call of the file for each part.
ssize_t read_memory_file(int file, std::uint64_t address, ByteSpan to) {
  const WatchedParts here(to);
  return preadv(file, here.parts.data(), static_cast<int>(here.count), static_cast<off_t>(address));
}

ssize_t write_memory_file(int file, std::uint64_t address, ByteView from) {
  const WatchedParts here(from);
  return pwritev(file, here.parts.data(), static_cast<int>(here.count),
                 static_cast<off_t>(address));
}

}  // namespace softhca
