#include "memory/foreign_memory.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "memory/often_copied.hpp"
#include "memory/process_copy.hpp"

namespace softhca {
namespace {

// More are written one by one.
constexpr std::size_t kMostPieces = 64;

bool goes_by_number(const ForeignMemory& memory, std::uint64_t address, std::size_t bytes) {
  std::uint8_t byte;
  return memory.process != 0 && bytes >= kLongForeignBytes &&
         pread(memory.file, &byte, 1, static_cast<off_t>(address)) == 1;
}

// What is left of a range is moved by the file, in as many calls as it takes.
template <class Part, class ByFile>
bool move_by_file(const ForeignMemory& memory, std::uint64_t address, Part part, ByFile by_file) {
  while (!part.empty()) {
    const ssize_t moved = by_file(memory.file, address, part);
    if (moved <= 0) return false;
    const auto count = static_cast<std::size_t>(moved);
    address += count;
    part = part.subspan(count);
  }
  return true;
}

ssize_t read_in_any_order(int file, std::uint64_t address, ByteSpan to) {
  return pread(file, to.data(), to.size(), static_cast<off_t>(address));
}

bool read_by_number(pid_t process, std::uint64_t address, ByteSpan to) {
  const ProcessRead read{address, to};
  return read_process(process, std::span(&read, 1)) == 1;
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

bool read_foreign(const ForeignMemory& memory, std::uint64_t address, ByteSpan to, ReadInto into) {
  if (goes_by_number(memory, address, to.size()) && read_by_number(memory.process, address, to)) {
    note_foreign_copy(memory, address, to.size());
    return true;
  }
  return into == ReadInto::WATCHED || to.size() >= kLongForeignBytes
             ? move_by_file(memory, address, to, read_memory_file)
             : move_by_file(memory, address, to, read_in_any_order);
}

bool write_foreign(const ForeignMemory& memory, std::uint64_t address, ByteView from) {
  return write_foreign(memory, address, std::span(&from, 1));
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
  if (count == from.size() && goes_by_number(memory, address, bytes) &&
      write_process(memory.process, address, std::span(here).first(count), bytes) ==
          static_cast<ssize_t>(bytes)) {
    note_foreign_copy(memory, address, bytes);
    return true;
  }
  for (const ByteView& piece : from) {
    if (!move_by_file(memory, address, piece, write_memory_file)) return false;
    address += piece.size();
  }
  return true;
}

}  // namespace softhca
