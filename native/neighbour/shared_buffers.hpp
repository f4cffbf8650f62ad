// Memory of this process that is a file, so that a neighbour can map it instead of having it copied
// by the kernel. One table for the process, as its mappings are.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

#include "link/file_descriptor.hpp"

namespace softhca {

struct SharedBuffer {
  std::uint64_t number = 0;  // Never 0, and never used again.
  std::uint64_t address = 0;
  std::uint64_t length = 0;

  bool holds(std::uint64_t at, std::uint64_t bytes) const {
    return at - address <= length && bytes <= length - (at - address);
  }
};

class SharedBuffers {
 public:
  // Takes a copy of the descriptor. False: there is none to be had.
  bool add(std::uint64_t address, std::uint64_t length, int fd);
  // By the descriptor that it was added with.
  void remove(int fd);
  // The buffer that has all of these bytes; its number is 0 if there is none.
  SharedBuffer find(std::uint64_t address, std::uint64_t length) const;
  // A descriptor of its own for whoever tells a neighbour; not open if the buffer is gone.
  FileDescriptor descriptor(std::uint64_t number) const;
  // Changes with every removal.
  std::uint64_t removals() const { return removals_.load(std::memory_order_acquire); }
  // Around fork(): the child finds the table complete, and nobody at it.
  void hold() { mutex_.lock(); }
  void let_go() { mutex_.unlock(); }

 private:
  struct Entry {
    SharedBuffer buffer;
    FileDescriptor fd;  // The copy.
    int named = -1;     // What it was copied from.
  };
  mutable std::mutex mutex_;
  std::map<std::uint64_t, Entry> by_address_;
  std::uint64_t next_ = 1;
  std::atomic<std::uint64_t> removals_ = 0;
};

SharedBuffers& shared_buffers();

}  // namespace softhca
