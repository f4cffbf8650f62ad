// Copies by the kernel between this process's memory and another's, in one system call each.
//
// The kernel's copying instructions may show their bytes in any order. Programs watch the last byte
// of what they wait for, so the last bytes go in a piece of their own, behind the others.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <span>

#include "vocabulary/bytes.hpp"

namespace softhca {

// A range as the kernel shall copy it: all but its last bytes, and these.
struct WatchedParts {
  WatchedParts(std::uint64_t address, std::size_t bytes);
  explicit WatchedParts(ByteView bytes)
      : WatchedParts(reinterpret_cast<std::uintptr_t>(bytes.data()), bytes.size()) {}

  std::array<iovec, 2> parts;
  std::size_t count;
};

// A range of another process's memory, and where it is to be.
struct ProcessRead {
  std::uint64_t address = 0;
  ByteSpan to;
};

// x86-64 keeps the stores of one copying instruction before those of the next: pieces here are seen
// in their order, as are ranges behind each other (Intel SDM Vol 3A, 8.2.4). Elsewhere each range
// is a call with two parts over there, between which the kernel does more than copying.
#if defined(__x86_64__)
inline constexpr bool kPiecesInOrder = true;
#else
inline constexpr bool kPiecesInOrder = false;
#endif
inline constexpr std::size_t kMostReads = kPiecesInOrder ? 16 : 1;

// Reads ranges in their order, in one system call, up to the first that is not there, of which a
// part may have been read: how many were read. At most kMostReads.
std::size_t read_process(pid_t process, std::span<const ProcessRead> reads);

// As the system calls of nearly the same names: the bytes that were moved, or -1 and errno.
ssize_t write_process(pid_t process, std::uint64_t address, std::span<const iovec> from,
                      std::size_t bytes);
ssize_t read_memory_file(int file, std::uint64_t address, ByteSpan to);
ssize_t write_memory_file(int file, std::uint64_t address, ByteView from);

}  // namespace softhca
