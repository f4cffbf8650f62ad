// Completion events of a program: records in a pipe, which it reads as from the kernel's channel.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "driver/completion_sink.hpp"
#include "link/file_descriptor.hpp"

namespace softhca {

// The writing end of a completion channel. Thread-safe.
class EventPipe {
 public:
  // Duplicates the descriptor. Writing to the pipe then does not block.
  explicit EventPipe(int write_fd);
  // errno of what could not be done of that; 0 if nothing.
  int error() const { return error_; }

  // Writes a record of eight bytes: the program's name for the queue. A full pipe becomes larger. A
  // record that finds it full and as large as it may be is dropped: the pipe's reader has more to
  // read than it can have missed.
  void write(std::uint64_t user_handle);
  // Takes the unread records of a queue that is being destroyed out of the pipe; how many of them
  // the program has read in all its life.
  std::uint64_t forget(std::uint64_t user_handle);

 private:
  bool put(std::uint64_t user_handle);

  std::mutex mutex_;
  FileDescriptor pipe_;
  int error_ = 0;
  std::unordered_map<std::uint64_t, std::uint64_t> written_;  // Records by queue.
};

// Where the events of one queue go.
class PipeSink final : public CompletionSink {
 public:
  PipeSink(std::shared_ptr<EventPipe> pipe, std::uint64_t user_handle)
      : pipe_(std::move(pipe)), user_handle_(user_handle) {}
  void notify(std::uint32_t) override { pipe_->write(user_handle_); }

 private:
  std::shared_ptr<EventPipe> pipe_;
  const std::uint64_t user_handle_;
};

}  // namespace softhca
