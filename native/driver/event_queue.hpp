// Events on their way from the adapter to whoever waits for them, with a descriptor to wait on.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>

#include "adapter/adapter.hpp"
#include "link/file_descriptor.hpp"

namespace softhca {

// Thread-safe.
class EventQueue {
 public:
  // More than this and the oldest are forgotten: nobody reads.
  static constexpr std::size_t kCapacity = 65536;

  // Makes the descriptor; returns errno.
  int open();
  // Readable while the queue is not empty.
  int fd() const { return readable_.get(); }
  void push(const AsyncEvent& event);
  // Takes the oldest event; false if there is none.
  bool pop(AsyncEvent& event);
  // For a child after fork(): the parent may have been in the middle of a push.
  void abandon();

 private:
  std::mutex mutex_;
  std::unique_ptr<std::deque<AsyncEvent>> events_ = std::make_unique<std::deque<AsyncEvent>>();
  FileDescriptor readable_;
};

}  // namespace softhca
