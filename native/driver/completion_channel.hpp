// A completion channel: which armed CQs got a completion, with a descriptor to wait on.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>

#include "driver/completion_sink.hpp"
#include "link/file_descriptor.hpp"

namespace softhca {

// Thread-safe. The descriptor is readable while events wait, and for ever once it is closed, so
// that whoever waits wakes up; it stays open as long as the object lives, so that nobody waits on a
// number that has become another file.
class CompletionChannel final : public CompletionSink {
 public:
  ~CompletionChannel() override;
  // Makes the descriptor; returns errno.
  int open();
  int fd() const { return readable_.get(); }
  void notify(std::uint32_t cq) override;
  // The descriptor may be another file by the end, and is not closed.
  void lose() override { lost_.store(true); }
  // Takes the oldest event; 0 if there is none.
  std::uint32_t pop();
  // Takes back an event that another reader is to have.
  void put_back(std::uint32_t cq);
  // Drops the events of a CQ that is being destroyed.
  void forget(std::uint32_t cq);
  void close();
  // Whether the descriptor is readable.
  bool has_event() const { return signaled_.load(); }
  bool closed() const { return closed_.load(); }

 private:
  void settle();

  std::mutex mutex_;
  std::deque<std::uint32_t> events_;
  std::atomic<bool> signaled_{false};  // The descriptor is readable.
  std::atomic<bool> closed_{false};
  std::atomic<bool> lost_{false};
  FileDescriptor readable_;
};

}  // namespace softhca
