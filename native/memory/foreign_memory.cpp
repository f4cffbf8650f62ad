#include "memory/foreign_memory.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <atomic>

namespace softhca {
namespace {

// From here on the calls that go by the number cost less.
constexpr std::size_t kLongBytes = 8192;

bool goes_by_number(const ForeignMemory& memory, std::uint64_t address, std::size_t bytes) {
  std::uint8_t byte;
  return memory.process != 0 && bytes >= kLongBytes &&
         pread(memory.file, &byte, 1, static_cast<off_t>(address)) == 1;
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
  if (goes_by_number(memory, address, to.size())) {
    const iovec here{to.data(), to.size()};
    const iovec there{reinterpret_cast<void*>(address), to.size()};
    const ssize_t got = process_vm_readv(memory.process, &here, 1, &there, 1, 0);
    if (got == static_cast<ssize_t>(to.size())) {
      return true;
    }
  }
  while (!to.empty()) {
    const ssize_t got = pread(memory.file, to.data(), to.size(), static_cast<off_t>(address));
    if (got <= 0) {
      return false;
    }
    address += static_cast<std::uint64_t>(got);
    to = to.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

bool write_foreign(const ForeignMemory& memory, std::uint64_t address, ByteView from) {
  if (goes_by_number(memory, address, from.size())) {
    const iovec here{const_cast<std::uint8_t*>(from.data()), from.size()};
    const iovec there{reinterpret_cast<void*>(address), from.size()};
    const ssize_t put = process_vm_writev(memory.process, &here, 1, &there, 1, 0);
    if (put == static_cast<ssize_t>(from.size())) {
      return true;
    }
  }
  while (!from.empty()) {
    const ssize_t put = pwrite(memory.file, from.data(), from.size(), static_cast<off_t>(address));
    if (put <= 0) {
      return false;
    }
    address += static_cast<std::uint64_t>(put);
    from = from.subspan(static_cast<std::size_t>(put));
  }
  return true;
}

}  // namespace softhca
