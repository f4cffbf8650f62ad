// The file behind the device descriptor of one program: its queues are mapped from it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "link/file_descriptor.hpp"
#include "vocabulary/status.hpp"

namespace softhca {

// Thread-safe. Sparse: what no queue lies in takes no memory.
class RingFile {
 public:
  // Where queues end. Nothing is ever put in the same place twice, so that a program that keeps a
  // mapping too long meets zeros. So there is room for all that are ever made.
  static constexpr std::uint64_t kQueueBytes = std::uint64_t{1} << 61;
  // From here on lies what programs write to the file: at this position their descriptions begin.
  static constexpr std::uint64_t kDoorbellsAt = kQueueBytes;

  static Result<std::shared_ptr<RingFile>> make();

  int fd() const { return file_.get(); }
  // By which the file is recognised.
  std::uint64_t inode() const { return inode_; }
  // A place for so many bytes, on a page of its own.
  Result<std::uint64_t> allocate(std::uint64_t bytes);
  // Gives its memory back; mappings of it stay, and see zeros.
  void free(std::uint64_t offset, std::uint64_t bytes);
  // Whoever is writing to the file has finished, and all that was written can be seen.
  void wait_for_writer() const;

 private:
  FileDescriptor file_;
  std::uint64_t inode_ = 0;
  std::mutex mutex_;
  std::uint64_t end_ = 0;
};

}  // namespace softhca
