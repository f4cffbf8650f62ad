// Completion events of one queue of a program, as records in the pipe that is its completion
// channel.
#pragma once

#include <atomic>
#include <cstdint>

#include "driver/completion_sink.hpp"
#include "link/file_descriptor.hpp"

namespace softhca {

class PipeSink final : public CompletionSink {
 public:
  // Takes a duplicate of the pipe's writing end, which must not block. `user_handle` is the
  // program's name for the queue.
  PipeSink(int write_fd, std::uint64_t user_handle);
  bool is_open() const { return pipe_.is_open(); }

  // Writes a record of eight bytes. One that finds the pipe full is dropped: its reader has more to
  // read than it can have missed.
  void notify(std::uint32_t) override;
  std::uint64_t written() const { return written_.load(); }

 private:
  FileDescriptor pipe_;
  const std::uint64_t user_handle_;
  std::atomic<std::uint64_t> written_{0};
};

}  // namespace softhca
