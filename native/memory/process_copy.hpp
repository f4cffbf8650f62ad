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

  std::array<iovec, 2> parts;
  std::size_t count;
};

// As the system calls of nearly the same names: the bytes that were moved, or -1 and errno.
ssize_t read_process(pid_t process, std::uint64_t address, ByteSpan to);
ssize_t write_process(pid_t process, std::uint64_t address, std::span<const iovec> from,
                      std::size_t bytes);
ssize_t read_memory_file(int file, std::uint64_t address, ByteSpan to);
ssize_t write_memory_file(int file, std::uint64_t address, ByteView from);

}  // namespace softhca
