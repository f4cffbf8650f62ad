// The memory of another process, by its memory file (/proc/PID/mem), which belongs to one address
// space for good: after an exec or the death of the process every access fails, whoever has its
// number by then.
//
// What is long goes by process_vm_readv(2) and its like, which copy once where the file copies
// twice, but go by the number: the file is asked right before whether the memory is still there.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <span>

#include "vocabulary/bytes.hpp"

namespace softhca {

// As others may be handed it.
struct ForeignMemory {
  pid_t process = 0;  // 0: the number is not known, and the file alone is used.
  int file = -1;
  int lent = -1;             // The same for others to read. Theirs may be less than our rights.
  std::uint64_t number = 0;  // No other memory of this process's life has it.
  std::weak_ptr<const void> life;  // Expires with the descriptor.
};

// A number that no memory had before.
std::uint64_t next_foreign_number();

// Of memory that is no more nothing can be read, not even that it is not mapped.
bool foreign_is_gone(const ForeignMemory& memory);
// From here on the calls that go by the number cost less.
constexpr std::size_t kLongForeignBytes = 8192;

// Whether somebody may watch the last byte, to see that all is there. For what is long it costs
// next to nothing, and is taken for granted.
enum class ReadInto { BUFFER, WATCHED };

// False when any of it is not there; a part may have been moved.
bool read_foreign(const ForeignMemory& memory, std::uint64_t address, ByteSpan to,
                  ReadInto into = ReadInto::BUFFER);
bool write_foreign(const ForeignMemory& memory, std::uint64_t address, ByteView from);
bool write_foreign(const ForeignMemory& memory, std::uint64_t address,
                   std::span<const ByteView> from);

}  // namespace softhca
