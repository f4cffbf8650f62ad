// Memory of processes that a neighbour serves, to fetch payloads from: it has handed over their
// memory files.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>

#include "link/file_descriptor.hpp"
#include "memory/address_space.hpp"

namespace softhca {

class LentMemories {
 public:
  // A neighbour that serves more gets no more than its own copies across.
  static constexpr std::size_t kMost = 256;

  // `process`: its number here, as the neighbour has it; 0 if that is not known. Where the file is
  // not that process's, the number is not used: going by it takes our rights, and opening the file
  // took the neighbour's. A file that is no process's memory is not taken.
  void add(std::uint64_t number, pid_t process, FileDescriptor&& file);
  void remove(std::uint64_t number) { memories_.erase(number); }
  // Forgets the descriptors, which somebody else has closed.
  void lose();
  // Null if there is none.
  AddressSpace* find(std::uint64_t number) const;

 private:
  class Memory;
  std::map<std::uint64_t, std::shared_ptr<Memory>> memories_;
};

}  // namespace softhca
