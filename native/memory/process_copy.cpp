#include "memory/process_copy.hpp"

#include <unistd.h>

namespace softhca {
namespace {

// A word, which is what programs watch that do not watch a byte.
constexpr std::size_t kLastBytes = 8;

WatchedParts parts_of(const std::uint8_t* at, std::size_t bytes) {
  return {reinterpret_cast<std::uintptr_t>(at), bytes};
}

}  // namespace

WatchedParts::WatchedParts(std::uint64_t address, std::size_t bytes) {
  const std::size_t first = bytes > kLastBytes ? bytes - kLastBytes : bytes;
  parts[0] = {reinterpret_cast<void*>(address), first};
  parts[1] = {reinterpret_cast<void*>(address + first), bytes - first};
  count = bytes > first ? 2 : 1;
}

// The kernel copies for each part of the other process's memory anew, whatever the parts here.
ssize_t read_process(pid_t process, std::uint64_t address, ByteSpan to) {
  const iovec here{to.data(), to.size()};
  const WatchedParts there(address, to.size());
  return process_vm_readv(process, &here, 1, there.parts.data(), there.count, 0);
}

ssize_t write_process(pid_t process, std::uint64_t address, std::span<const iovec> from,
                      std::size_t bytes) {
  const WatchedParts there(address, bytes);
  return process_vm_writev(process, from.data(), from.size(), there.parts.data(), there.count, 0);
}

// These are made of one call of the file for each part.
ssize_t read_memory_file(int file, std::uint64_t address, ByteSpan to) {
  const WatchedParts here = parts_of(to.data(), to.size());
  return preadv(file, here.parts.data(), static_cast<int>(here.count), static_cast<off_t>(address));
}

ssize_t write_memory_file(int file, std::uint64_t address, ByteView from) {
  const WatchedParts here = parts_of(from.data(), from.size());
  return pwritev(file, here.parts.data(), static_cast<int>(here.count),
                 static_cast<off_t>(address));
}

}  // namespace softhca
