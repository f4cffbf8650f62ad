#include "memory/foreign_memory.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>

namespace softhca {
namespace {

// From here on the calls that go by the number cost less.
constexpr std::size_t kLongBytes = 8192;
// More are written one by one.
constexpr std::size_t kMostPieces = 64;

bool goes_by_number(const ForeignMemory& memory, std::uint64_t address, std::size_t bytes) {
  std::uint8_t byte;
  return memory.process != 0 && bytes >= kLongBytes &&
         pread(memory.file, &byte, 1, static_cast<off_t>(address)) == 1;
}

// Reads or writes, as the two calls do: the one by the process's number, the other by its file.
template <class ByNumber, class ByFile>
bool move(const ForeignMemory& memory, std::uint64_t address, std::uint8_t* at, std::size_t bytes,
          ByNumber by_number, ByFile by_file) {
  if (goes_by_number(memory, address, bytes)) {
    const iovec here{at, bytes};
    const iovec there{reinterpret_cast<void*>(address), bytes};
    const ssize_t moved = by_number(memory.process, &here, 1, &there, 1, 0);
    if (moved == static_cast<ssize_t>(bytes)) return true;
  }
  while (bytes > 0) {
    const ssize_t moved = by_file(memory.file, at, bytes, static_cast<off_t>(address));
    if (moved <= 0) return false;
    const auto count = static_cast<std::size_t>(moved);
    address += count;
    at += count;
    bytes -= count;
  }
  return true;
}

}  // namespace

std::uint64_t next_foreign_number() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

bool foreign_is_gone(const ForeignMemory& memory) {
  std::uint8_t byte;
  return pread(memory.file, &byte, 1, 0) == 0;
}

bool read_foreign(const ForeignMemory& memory, std::uint64_t address, ByteSpan to) {
  return move(memory, address, to.data(), to.size(), process_vm_readv, pread);
}

bool write_foreign(const ForeignMemory& memory, std::uint64_t address, ByteView from) {
  // Neither call changes what it takes.
  const auto bytes = const_cast<std::uint8_t*>(from.data());
  return move(memory, address, bytes, from.size(), process_vm_writev, pwrite);
}

bool write_foreign(const ForeignMemory& memory, std::uint64_t address,
                   std::span<const ByteView> from) {
  std::array<iovec, kMostPieces> here;
  std::size_t bytes = 0;
  std::size_t count = 0;
  for (const ByteView& piece : from.first(std::min(from.size(), here.size()))) {
    here[count++] = {const_cast<std::uint8_t*>(piece.data()), piece.size()};
    bytes += piece.size();
  }
  const iovec there{reinterpret_cast<void*>(address), bytes};
  if (count == from.size() && goes_by_number(memory, address, bytes) &&
      process_vm_writev(memory.process, here.data(), count, &there, 1, 0) ==
          static_cast<ssize_t>(bytes)) {
    return true;
  }
  for (const ByteView& piece : from) {
    if (!write_foreign(memory, address, piece)) return false;
    address += piece.size();
  }
  return true;
}

}  // namespace softhca
